//! How long expressions take: `cargo bench -p conductor-cel`. A plain harness; each line is the
//! best of several runs, so that a busy machine disturbs little.

use std::hint::black_box;
use std::time::Instant;

use conductor_cel::{Activation, Budget, DeclType, Env, Fidelity, Program, Value, limits};
use serde_json::json;

/// (name, expression, nanoseconds it should take at most)
const CASES: [(&str, &str, u64); 9] = [
    ("simple comparison", "self.replicas <= self.max", 2_000),
    ("string comparison", "self.name == 'web-frontend'", 2_000),
    (
        "nested exists_one over ten items",
        "self.items.exists_one(a, a.name == 'item-7' && a.ports.exists_one(p, p == 82))",
        10_000,
    ),
    ("quadratic over ten items", "self.items.all(a, self.items.exists_one(b, a.name == b.name))", 100_000),
    ("constant regex", "self.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", 2_000),
    ("quantity", "quantity(self.storage).isLessThan(quantity('10Gi'))", 4_000),
    ("map and join", "self.items.map(i, i.name).join(',') != ''", 20_000),
    ("optional with default", "self.?missing.orValue(3) == 3", 2_000),
    ("string format", "'%s has %d'.format([self.name, self.replicas]) != ''", 4_000),
];

/// The ten worst expressions we could think of; `tests/worst.rs` has more of each kind.
const WORST: [(&str, &str); 10] = [
    ("loops within loops", "self.l.all(a, self.l.all(b, self.l.all(c, a != b || b != c || a == c)))"),
    ("a list without end", "lists.range(9223372036854775807).size() > 0"),
    ("targets evaluated twice, 40 deep", "optional.of(1)….hasValue()"),
    ("a regex that backtracks", "self.s.matches('^(a+a+)+b$')"),
    ("a new regex for each item", "self.l.all(x, !'zzz'.matches('(a|b|c|d){500}' + x))"),
    ("text that grows", "self.s.replace('', self.s).size() > 0"),
    ("text joined by itself", "self.l.map(x, self.s).join(self.s).size() > 0"),
    ("deep equality for nothing", "self.l.all(x, self.l == self.l)"),
    ("long text read for nothing", "self.l.all(x, self.s.size() > 0)"),
    ("everything compared with everything", "self.l.distinct().size() > 0"),
];

fn main() {
    usual();
    worst();
}

/// How each of the worst ends, and how long it holds a thread until then.
fn worst() {
    let schema = json!({"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "string"}}, "s": {"type": "string"}}});
    let decl = DeclType::from_structural(&schema, "self", false).expect("the schema has a type");
    let strings: Vec<String> = (0..3000).map(|i| format!("item-{i}")).collect();
    let object = json!({"l": strings, "s": "a".repeat(100_000)});
    let env = Env::kubernetes_crd().declare_schema("self", decl.clone());
    let activation = Activation::new().with("self", Value::typed(&object, &decl).expect("the object fits"));
    println!("\n{:36} {:>10}  when compiled, and if it is run all the same", "the worst", "run");
    for (name, source) in WORST {
        let source = source.replace('…', &".optMap(x, x + 1)".repeat(40));
        let Ok(program) = env.compile(&source) else {
            println!("{name:36} {:>10}  refused", "");
            continue;
        };
        let estimate = program.estimate(Fidelity::Kubernetes).max;
        let verdict = if estimate > limits::ESTIMATE_PER_RULE { "refused" } else { "taken" };
        let start = Instant::now();
        let end = match program.evaluate(&activation, &mut Budget::kubernetes()) {
            Ok(_) => "ends within its budget".to_owned(),
            Err(error) => error.to_string(),
        };
        println!("{name:36} {:>7} ms  {verdict}; {end}", start.elapsed().as_millis());
    }
}

fn usual() {
    let schema = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"},
        "max": {"type": "integer"},
        "missing": {"type": "integer"},
        "name": {"type": "string", "maxLength": 63},
        "storage": {"type": "string", "maxLength": 20},
        "items": {"type": "array", "maxItems": 10, "items": {"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 63},
            "ports": {"type": "array", "maxItems": 10, "items": {"type": "integer"}}
        }}}
    }});
    let decl = DeclType::from_structural(&schema, "self", false).expect("the schema has a type");
    let items: Vec<_> =
        (0..10).map(|i| json!({"name": format!("item-{i}"), "ports": (80..90).collect::<Vec<i32>>()})).collect();
    let object = json!({"replicas": 3, "max": 5, "name": "web-frontend", "storage": "5Gi", "items": items});
    let env = Env::kubernetes_crd().declare_schema("self", decl.clone());
    let activation = Activation::new().with("self", Value::typed(&object, &decl).expect("the object fits"));

    println!("{:36} {:>10} {:>10} {:>12} {:>12}", "", "evaluate", "aim", "compile", "estimate");
    for (name, source, aim) in CASES {
        let program = env.compile(source).unwrap_or_else(|e| panic!("{name}: {e}"));
        let evaluate = best(2_000, || {
            let mut budget = Budget::kubernetes();
            black_box(program.evaluate(black_box(&activation), &mut budget)).is_ok()
        });
        let compile = best(50, || black_box::<Program>(env.compile(source).expect("compiled before")).uses("self"));
        let estimate = best(200, || black_box(program.estimate(Fidelity::Kubernetes)).max > 0);
        let verdict = if evaluate <= aim { "" } else { "  slower than aimed" };
        println!("{name:36} {evaluate:>7} ns {aim:>7} ns {:>9} ns {:>9} ns{verdict}", compile, estimate);
    }
}

/// Nanoseconds of one call, in the best of twenty runs.
fn best(calls: u32, mut f: impl FnMut() -> bool) -> u64 {
    (0..20)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..calls {
                assert!(f());
            }
            start.elapsed().as_nanos() as u64 / u64::from(calls)
        })
        .min()
        .unwrap_or(0)
}
