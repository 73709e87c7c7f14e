//! What holds for every expression: a well-typed one never fails with a type error, and none
//! costs more than was estimated.

use std::sync::Arc;

use conductor_cel::{Activation, Budget, CostEstimate, DeclType, Env, EvalError, Fidelity, Type, Value};
use proptest::prelude::*;
use serde_json::json;

/// Choices, read one after the other; at the end the first alternative is always taken.
struct Tape<'t> {
    choices: &'t [u8],
    vars: Vec<(String, T)>,
    named: usize,
}

/// Types of generated expressions.
#[derive(Clone, Copy, PartialEq, Debug)]
enum T {
    Bool,
    Int,
    Double,
    Str,
    Ints,
    Strs,
    Map,
    OptInt,
    OptStr,
    Duration,
}

impl Tape<'_> {
    fn next(&mut self) -> usize {
        match self.choices.split_first() {
            Some((first, rest)) => {
                self.choices = rest;
                usize::from(*first)
            }
            None => 0,
        }
    }

    /// An expression of the type.
    fn expr(&mut self, t: T, depth: usize) -> String {
        let leaves = self.leaves(t);
        let choice = self.next();
        if depth == 0 || self.choices.is_empty() {
            return leaves[choice % leaves.len()].clone();
        }
        let templates = templates(t);
        let n = choice % (templates.len() + 1);
        if n == 0 {
            return leaves[self.next() % leaves.len()].clone();
        }
        self.fill(templates[n - 1], depth - 1)
    }

    fn leaves(&self, t: T) -> Vec<String> {
        let fixed: &[&str] = match t {
            T::Bool => &["true", "self.b", "false", "has(self.opt)"],
            T::Int => &["1", "self.i", "-7", "0", "self.big.size()"],
            T::Double => &["1.5", "self.d"],
            T::Str => &["'ab'", "self.s", "''", "'1Gi'", "self.o.a", "'é,x'"],
            T::Ints => &["[1, 2]", "self.li", "lists.range(3)"],
            T::Strs => &["['a', 'b']", "self.ls", "self.set"],
            T::Map => &["{'a': 1}", "self.m"],
            T::OptInt => &["optional.of(3)", "self.?i", "self.m[?'none']"],
            T::OptStr => &["self.?opt", "self.?s", "self.o.?a"],
            T::Duration => &["duration('1h')", "self.du"],
        };
        let scoped = self.vars.iter().rev().filter(|(_, vt)| *vt == t).map(|(name, _)| name.clone());
        scoped.chain(fixed.iter().map(|s| (*s).to_owned())).collect()
    }

    /// Fills `$x` places: `$b` a bool, `$i` an int and so on; `@i` binds a fresh variable of that
    /// type for what follows: nothing may come after the macro.
    fn fill(&mut self, template: &str, depth: usize) -> String {
        let mut out = String::new();
        let mut bound = 0;
        let mut chars = template.chars();
        while let Some(c) = chars.next() {
            match c {
                '$' => {
                    let t = letter(chars.next());
                    out.push_str(&self.expr(t, depth));
                }
                '@' => {
                    let t = letter(chars.next());
                    self.named += 1;
                    let name = format!("x{}", self.named);
                    out.push_str(&name);
                    self.vars.push((name, t));
                    bound += 1;
                }
                other => out.push(other),
            }
        }
        self.vars.truncate(self.vars.len() - bound);
        out
    }
}

fn letter(c: Option<char>) -> T {
    match c {
        Some('b') => T::Bool,
        Some('i') => T::Int,
        Some('d') => T::Double,
        Some('s') => T::Str,
        Some('I') => T::Ints,
        Some('S') => T::Strs,
        Some('m') => T::Map,
        Some('o') => T::OptInt,
        Some('O') => T::OptStr,
        Some('u') => T::Duration,
        other => panic!("no type {other:?}"),
    }
}

fn templates(t: T) -> &'static [&'static str] {
    match t {
        T::Bool => &[
            "($i == $i)",
            "($i < $i)",
            "($s == $s)",
            "($s >= $s)",
            "($b && $b)",
            "($b || $b || $b)",
            "!($b)",
            "($b ? $b : $b)",
            "($i in $I)",
            "($s in $S)",
            "$I.all(@i, $b)",
            "$I.exists(@i, $b)",
            "$I.exists_one(@i, $b)",
            "$S.all(@s, $b)",
            "$S.exists(@s, $b)",
            "$m.all(@s, $b)",
            "$m.exists(@s, @i, $b)",
            "$I.all(@i, @i, $b)",
            "$s.startsWith($s)",
            "$s.endsWith($s)",
            "$s.contains($s)",
            "$s.matches('^[a-z]+')",
            "$s.matches($s)",
            "$I.isSorted()",
            "$S.isSorted()",
            "sets.contains($I, $I)",
            "sets.intersects($S, $S)",
            "sets.equivalent($I, $I)",
            "($I == $I)",
            "($S == $S)",
            "($m == $m)",
            "($s in $m)",
            "isQuantity($s)",
            "isIP($s)",
            "isCIDR($s)",
            "isURL($s)",
            "isSemver($s)",
            "$o.hasValue()",
            "$O.hasValue()",
            "($d < $i)",
            "($d <= $d)",
            "(self.o == self.o)",
            "(self.set == $S)",
            "quantity($s).isLessThan(quantity($s))",
            "cidr('10.0.0.0/8').containsIP($s)",
            "(type($i) == int)",
            "($u > $u)",
            "($o == $o)",
            "format.dns1123Label().validate($s).hasValue()",
            "($o.optMap(@i, $b) == optional.of(true))",
            "(self.objects == self.objects)",
            "self.objects.all(o, o.a == $s)",
            "self.objects.exists_one(o, size(o.n) > $i)",
        ],
        T::Int => &[
            "($i + $i)",
            "($i - $i)",
            "($i * $i)",
            "($i / $i)",
            "($i % $i)",
            "-($i)",
            "size($s)",
            "size($I)",
            "$I[$i]",
            "$m[$s]",
            "$s.indexOf($s)",
            "$s.lastIndexOf($s)",
            "$I.indexOf($i)",
            "$S.lastIndexOf($s)",
            "$I.sum()",
            "$I.min()",
            "$I.max()",
            "int($s + '1')",
            "int($d + 0.5)",
            "($b ? $i : $i)",
            "$o.orValue($i)",
            "$m.size()",
            "$o.value()",
            "$u.getSeconds()",
            "ip($s).family()",
            "semver($s).major()",
            "quantity($s).asInteger()",
            "quantity($s).compareTo(quantity($s))",
            "self.objects.size()",
            "self.objects[$i].n.size()",
            "size(url($s).getQuery())",
        ],
        T::Double => &[
            "($d + $d)",
            "($d * $d)",
            "double($i)",
            "double($s + '0')",
            "($b ? $d : $d)",
            "quantity($s).asApproximateFloat()",
        ],
        T::Str => &[
            "($s + $s)",
            "$s.lowerAscii()",
            "$s.upperAscii()",
            "$s.trim()",
            "$s.replace($s, $s)",
            "$s.substring($i)",
            "$s.charAt($i)",
            "$S[$i]",
            "string($i)",
            "string($d)",
            "$S.join($s)",
            "$S.join()",
            "($b ? $s : $s)",
            "$s.find('[a-z]+')",
            "$O.orValue($s)",
            "'%s-%d'.format([$s, $i])",
            "strings.quote($s)",
            "string(bytes($s))",
            "$S.max()",
            "url($s).getHost()",
            "$O.optMap(@s, $s).orValue('none')",
            "self.objects[$i].a",
            "$S.first().orValue($s)",
            "string($u)",
        ],
        T::Ints => &[
            "[$i, $i]",
            "($I + $I)",
            "$I.map(@i, $i)",
            "$I.map(@i, $b, $i)",
            "$I.filter(@i, $b)",
            "$I.reverse()",
            "$I.slice(0, 1)",
            "$I.slice($i, $i)",
            "$I.distinct()",
            "$I.sort()",
            "$S.map(@s, $i)",
            "$m.map(@s, $i)",
            "$I.transformList(@i, @i, $i)",
            "[$I, $I].flatten()",
            "$I.sortBy(@i, $i)",
            "($b ? $I : $I)",
            "[?$o, $i]",
            "[$o, $o].unwrapOpt()",
            "self.objects.map(o, o.n.size())",
        ],
        T::Strs => &[
            "[$s, $s]",
            "($S + $S)",
            "$s.split($s)",
            "$s.split(',', 2)",
            "$S.filter(@s, $b)",
            "$s.findAll('[a-z]')",
            "$s.findAll($s)",
            "$m.map(@s, $s)",
            "$I.map(@i, $s)",
            "$S.sort()",
            "$S.distinct()",
            "$S.sortBy(@s, $s)",
            "self.objects.map(o, o.a)",
            "(self.set + $S)",
            "$S.reverse()",
            "($b ? $S : $S)",
        ],
        T::Map => &[
            "{'a': $i, 'b': $i}",
            "{$s: $i}",
            "$m.transformMap(@s, @i, $i)",
            "$m.transformMap(@s, @i, $b, $i)",
            "$S.transformMapEntry(@i, @s, {$s: $i})",
            "{?$s: $o}",
            "($b ? $m : $m)",
        ],
        T::OptInt => &[
            "optional.of($i)",
            "$I[?$i]",
            "$m[?$s]",
            "$I.first()",
            "$I.last()",
            "$o.optMap(@i, $i)",
            "$o.or($o)",
            "$o.optFlatMap(@i, $o)",
            "optional.ofNonZeroValue($i)",
        ],
        T::OptStr => &[
            "optional.of($s)",
            "$S[?$i]",
            "$O.optMap(@s, $s)",
            "$O.or($O)",
            "self.objects[?$i].a",
            "optional.ofNonZeroValue($s)",
        ],
        T::Duration => &["($u + $u)", "duration($s + 's')", "($u - $u)"],
    }
}

fn schema() -> Arc<DeclType> {
    let object = json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 5},
        "n": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 4}}
    }});
    let schema = json!({"type": "object", "properties": {
        "b": {"type": "boolean"},
        "i": {"type": "integer"},
        "d": {"type": "number"},
        "s": {"type": "string", "maxLength": 12},
        "opt": {"type": "string", "maxLength": 12},
        "du": {"type": "string", "format": "duration"},
        "big": {"type": "string"},
        "li": {"type": "array", "maxItems": 6, "items": {"type": "integer"}},
        "ls": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 6}},
        "set": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 6}},
        "m": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "integer"}},
        "o": object,
        "objects": {"type": "array", "maxItems": 4, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": object}
    }});
    DeclType::from_structural(&schema, "self", false).unwrap()
}

fn object(seed: u64) -> serde_json::Value {
    let n = |k: u64| (seed / k) as usize;
    let word = |k: u64| "ünïcode-words,1Gi".chars().cycle().skip(n(k) % 17).take(n(k) % 6).collect::<String>();
    let list = |k: u64, max: usize| (0..n(k) % (max + 1)).map(|i| word(k + i as u64)).collect::<Vec<_>>();
    let mut object = json!({
        "b": seed.is_multiple_of(2),
        "i": n(3) as i64 % 9 - 4,
        "d": (n(5) % 100) as f64 / 8.0 - 3.0,
        "s": word(7),
        "du": format!("{}m", n(11) % 100),
        "big": "x".repeat(n(13) % 50),
        "li": (0..n(17) % 7).map(|i| i as i64 - 2).collect::<Vec<_>>(),
        "ls": list(19, 5),
        "set": (0..n(23) % 6).map(|i| format!("s{i}")).collect::<Vec<_>>(),
        "m": {"a": 1, "k": n(29) % 5},
        "o": {"a": word(31)},
        "objects": (0..n(37) % 5).map(|i| json!({"a": format!("k{i}"), "n": list(41, 3)})).collect::<Vec<_>>(),
    });
    if seed.is_multiple_of(3) {
        object["opt"] = json!("given");
    }
    object
}

fn matches(value: &Value<'_>, t: &Type) -> bool {
    match (t, value) {
        (Type::Dyn, _) => true,
        (Type::List(element), Value::List(list)) => list.iter().all(|item| item.is_ok_and(|v| matches(&v, element))),
        (Type::Map(kv), Value::Map(map)) => map.keys().iter().all(|k| matches(k, &kv.0)),
        (Type::Optional(inner), Value::Optional(value)) => value.as_ref().is_none_or(|v| matches(v, inner)),
        (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Double, Value::Double(_))
        | (Type::String, Value::String(_))
        | (Type::Duration, Value::Duration(_)) => true,
        _ => false,
    }
}

const TYPES: [T; 10] =
    [T::Bool, T::Int, T::Double, T::Str, T::Ints, T::Strs, T::Map, T::OptInt, T::OptStr, T::Duration];

fn check(choices: &[u8], seed: u64) -> Result<(), TestCaseError> {
    let decl = schema();
    let mut tape = Tape { choices, vars: Vec::new(), named: 0 };
    let t = TYPES[tape.next() % TYPES.len()];
    let source = tape.expr(t, 4);
    let env = Env::kubernetes_crd().declare_schema("self", decl.clone());
    let program = env.compile(&source).map_err(|e| TestCaseError::fail(format!("{source}: {e}")))?;
    let object = object(seed);
    let activation = Activation::new().with("self", Value::typed(&object, &decl).unwrap());
    let mut budget = Budget::kubernetes();
    let result = program.evaluate(&activation, &mut budget);
    match &result {
        Err(EvalError::NoSuchOverload(what)) => prop_assert!(false, "type error {} in {}", what, source),
        Ok(value) => prop_assert!(
            matches(value, program.output_type()),
            "{:?} is no {} in {}",
            value,
            program.output_type(),
            source
        ),
        Err(_) => {}
    }
    let CostEstimate { max, .. } = program.estimate(Fidelity::Sound);
    prop_assert!(
        budget.last_cost() <= max,
        "cost {} > estimate {} of {} for {}",
        budget.last_cost(),
        max,
        source,
        object
    );
    // Evaluation is a function.
    let again = program.evaluate(&activation, &mut Budget::kubernetes());
    prop_assert_eq!(format!("{:?}", result), format!("{:?}", again));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn well_typed_expressions_have_no_type_errors_and_cost_no_more_than_estimated(
        choices in proptest::collection::vec(any::<u8>(), 1..60),
        seed in any::<u64>(),
    ) {
        check(&choices, seed)?;
    }

    #[test]
    fn any_text_compiles_or_is_refused(source in "[ -~]{0,40}") {
        let env = Env::kubernetes_crd().declare_schema("self", schema());
        if let Err(e) = env.compile(&source) {
            prop_assert!(!e.issues().is_empty());
            prop_assert!(e.to_string().contains("ERROR: <input>:"));
        }
    }

    #[test]
    fn any_tokens_compile_or_are_refused(tokens in proptest::collection::vec(
        proptest::sample::select(vec![
            "self", ".", "?.", "[", "]", "{", "}", "(", ")", "li", "s", "m", "all", "map", "x", ",", "1", "2.5", "'a'",
            "b'z'", "+", "-", "*", "/", "%", "==", "<", "&&", "||", "!", "?", ":", "in", "has", "size", "true", "null",
            "optional", "of", "none", "optMap", "type", "dyn", "matches", "duration", "timestamp", "''", "r'\\d'",
        ]), 0..25)) {
        let env = Env::kubernetes_crd().declare_schema("self", schema());
        let decl = schema();
        if let Ok(program) = env.compile(&tokens.join(" ")) {
            let object = object(7);
            let activation = Activation::new().with("self", Value::typed(&object, &decl).unwrap());
            let mut budget = Budget::kubernetes();
            let _ = program.evaluate(&activation, &mut budget);
            prop_assert!(budget.last_cost() <= program.estimate(Fidelity::Sound).max);
        }
    }
}
