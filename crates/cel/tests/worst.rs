//! The worst expressions we could think of: each is refused when compiled or when its cost is
//! estimated, or stopped when it runs; none exhausts stack or memory.

use std::sync::{Arc, LazyLock};

use conductor_cel::{Activation, Budget, DeclType, Env, EvalError, Fidelity, Value, limits};
use serde_json::{Value as Json, json};

fn unbounded() -> Arc<DeclType> {
    let schema = json!({"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "string"}},
        "s": {"type": "string"},
        "o": {"type": "object", "properties": {"deep": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}}}
    }});
    DeclType::from_structural(&schema, "self", false).unwrap()
}

static OBJECT: LazyLock<Json> = LazyLock::new(|| {
    let strings: Vec<String> = (0..3000).map(|i| format!("item-{i}")).collect();
    json!({
        "l": strings,
        "s": "a".repeat(100_000),
        "o": {"deep": vec![strings.clone(); 100]}
    })
});

#[derive(Debug, PartialEq)]
enum End {
    /// Not an expression we take.
    NotCompiled,
    /// Refused by Kubernetes' limit per rule; and if it is run all the same, this happens.
    Refused(Result<(), EvalError>),
    /// Within the estimate's limit; this happens when it runs.
    Ran(Result<(), EvalError>),
}

fn end(env: Env, source: &str) -> End {
    end_within(env, source, Budget::kubernetes())
}

fn end_within(env: Env, source: &str, mut budget: Budget) -> End {
    let decl = unbounded();
    let Ok(program) = env.declare_schema("self", decl.clone()).compile(source) else { return End::NotCompiled };
    let activation = Activation::new().with("self", Value::typed(&OBJECT, &decl).unwrap());
    let result = program.evaluate(&activation, &mut budget).map(|_| ());
    if program.estimate(Fidelity::Kubernetes).max > limits::ESTIMATE_PER_RULE {
        End::Refused(result)
    } else {
        End::Ran(result)
    }
}

fn crd(source: &str) -> End {
    end(Env::kubernetes_crd(), source)
}

/// Binds `x0`, then each next variable to `step` of the one before.
fn doubling(first: &str, step: &str, times: usize) -> String {
    let mut out = format!("size(x{times})");
    for i in (1..=times).rev() {
        let value = step.replace('$', &format!("x{}", i - 1));
        out = format!("cel.bind(x{i}, {value}, {out})");
    }
    format!("cel.bind(x0, {first}, {out})")
}

#[test]
fn loops_within_loops() {
    let source = "self.l.all(a, self.l.all(b, self.l.all(c, a != b || b != c || a == c)))";
    assert_eq!(crd(source), End::Refused(Err(EvalError::CostLimit)));
}

#[test]
fn strings_that_double() {
    let source = doubling("'0123456789'", "$ + $", 60);
    assert_eq!(crd(&source), End::NotCompiled, "there is no cel.bind in Kubernetes");
    assert_eq!(end(Env::templates(), &source), End::Refused(Err(EvalError::CostLimit)));
}

#[test]
fn lists_that_double() {
    // Kubernetes charges one for joining lists, however long; memory is what stops it.
    let source = doubling("[1]", "$ + $", 60);
    assert_eq!(end(Env::templates(), &source), End::Ran(Err(EvalError::MemoryLimit)));
}

#[test]
fn lists_of_any_length() {
    assert_eq!(crd("lists.range(9223372036854775807).size() > 0"), End::Refused(Err(EvalError::MemoryLimit)));
}

#[test]
fn targets_evaluated_twice() {
    // Each optMap charges its target twice, as cel-go evaluates it twice.
    let chain = ".optMap(x, x + 1)".repeat(60);
    assert_eq!(crd(&format!("optional.of(1){chain}.hasValue()")), End::Refused(Err(EvalError::CostLimit)));
}

#[test]
fn regexes_that_explode() {
    assert_eq!(crd("self.s.matches('((a{1000}){1000}){1000}')"), End::NotCompiled);
    // Backtracking engines never come back from this.
    assert_eq!(crd("self.s.matches('^(a+a+)+b$')"), End::Ran(Ok(())));
    // A new pattern for each element.
    let source = "self.l.all(x, !'zzz'.matches('(a|b|c|d){500}' + x))";
    assert!(matches!(crd(source), End::Refused(Err(EvalError::CostLimit))));
}

#[test]
fn deep_equality_for_nothing() {
    // Kubernetes charges a comparison by the sizes of both sides, not by what is within.
    // A smaller budget than usual, for the sake of unoptimized builds.
    let end = end_within(Env::kubernetes_crd(), "self.l.all(x, self.o == self.o)", Budget::new(30_000, 30_000));
    assert_eq!(end, End::Ran(Err(EvalError::CostLimit)));
}

#[test]
fn long_texts_read_for_nothing() {
    // Kubernetes charges one for each of these, however long the text is.
    for source in ["self.l.all(x, self.s.size() > 0)", "self.l.all(x, self.s.charAt(0) == 'a')"] {
        let end = end_within(Env::kubernetes_crd(), source, Budget::new(30_000, 30_000));
        assert!(
            matches!(end, End::Ran(Err(EvalError::CostLimit)) | End::Refused(Err(EvalError::CostLimit))),
            "{source}: {end:?}"
        );
    }
}

#[test]
fn text_that_grows() {
    for source in [
        "self.s.replace('', self.s).size() > 0",
        "self.l.map(x, self.s).join(self.s).size() > 0",
        "self.l.all(x, self.l.map(y, self.s.split('').join(',')).size() > 0)",
        "'%s%s%s%s'.format([self.o.deep, self.o.deep, self.o.deep, self.o.deep]).split('').distinct().size() > 0",
        "self.s.findAll('').size() > 0 && self.s.split('').sort().size() > 0",
    ] {
        let end = crd(source);
        assert!(matches!(end, End::Refused(Err(ref e)) | End::Ran(Err(ref e)) if e.is_fatal()), "{source}: {end:?}");
    }
}

#[test]
fn quadratic_lists() {
    for source in ["self.l.distinct().size() > 0", "sets.equivalent(self.l, self.l)", "self.l.sort().size() > 0"] {
        assert_eq!(crd(source), End::Refused(Err(EvalError::CostLimit)), "{source}");
    }
}

#[test]
fn sources_without_end() {
    for source in [
        format!("{}1{}", "(".repeat(50_000), ")".repeat(40_000)),
        format!("{}1{}", "(".repeat(40_000), ")".repeat(40_000)),
        "[".repeat(90_000),
        "{1:".repeat(30_000),
        "-".repeat(90_000) + "x",
        format!("1{}", "+1".repeat(40_000)),
        format!("self{}", ".l".repeat(40_000)),
        format!("self{}", "[0]".repeat(30_000)),
        format!("true{}", "?true:true".repeat(9_000)),
        "x.map(x,".repeat(10_000),
        "'a'.matches(".repeat(8_000),
        "1".repeat(100_001),
    ] {
        assert_eq!(crd(&source), End::NotCompiled, "{}", &source[..30]);
    }
    // Long, but flat.
    assert_eq!(crd(&format!("true{}", " && true".repeat(12_000))), End::Ran(Ok(())));
    assert_eq!(crd(&format!("[1{}].size() > 0", ",1".repeat(45_000))), End::Ran(Ok(())));
}

#[test]
fn nesting_to_the_limit() {
    // What the parser still takes must not overflow a thread's stack anywhere after it.
    for (open, inner, close) in [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{1:", "1", "}"),
        ("-(", "1", ")"),
        ("!(", "true", ")"),
        ("[0].map(x,", "1", ")"),
        ("[0].all(x,", "true", ")"),
        ("[0].exists(x,", "[0].sortBy(x, x).size() == 1", ")"),
        ("dyn(", "1", ")"),
        ("optional.of(", "1", ")"),
        ("string(", "'a'", ")"),
        ("[1][", "0", "]"),
        ("true ? true : ", "true", ""),
        ("cel.bind(x, 1,", "x", ")"),
        ("optional.of(1).optMap(x,", "x", ")"),
        ("[[1]].transformList(i, v,", "v", ")"),
    ] {
        for depth in [40, 80, 120, 200, 248, 249, 250] {
            let source = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
            let _ = end(Env::templates(), &source);
        }
    }
}

#[test]
fn types_that_nest_in_each_other() {
    // Each level makes the type of the next variable a list of the one before.
    let mut source = String::from("true");
    for i in (1..60).rev() {
        let inner = format!("{}x{}{}", "[".repeat(60), i - 1, "]".repeat(60));
        source = format!("[].all(x{i}, x{i} == {inner} && {source})");
    }
    let source = format!("[].all(x0, {source})");
    let _ = end(Env::templates(), &source);
}

#[test]
fn a_shared_budget_runs_out() {
    let decl = unbounded();
    let program = Env::kubernetes_crd().declare_schema("self", decl.clone()).compile("self.l.all(x, x != '')").unwrap();
    let activation = Activation::new().with("self", Value::typed(&OBJECT, &decl).unwrap());
    let mut budget = Budget::new(limits::PER_CALL, 50_000);
    let mut runs = 0;
    let error = loop {
        match program.evaluate_bool(&activation, &mut budget) {
            Ok(holds) => assert!(holds),
            Err(e) => break e,
        }
        runs += 1;
    };
    assert_eq!((runs, error), (4, EvalError::BudgetExhausted));
}
