//! For every overload there is, in every library: a well-typed call of it has no type error, is of the type that the checker
//! says, and costs no more than was estimated. The calls are made from the signatures, so that a new function is tried as
//! soon as it is declared; arguments are literals, parts of an object with a schema, macros and other calls.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::json;

use crate::library::{Functions, Overload};
use crate::types::Type;
use crate::{Activation, Attributes, Authorizer, Budget, Decision, DeclType, Env, EvalError, Fidelity, Value};

/// Random choices (splitmix64), the same for the same seed.
struct Maker<'f> {
    random: u64,
    overloads: Vec<(&'static str, &'f Overload)>,
    vars: Vec<(String, Type)>,
    named: usize,
    /// What all texts are, for a while.
    text: Option<&'static str>,
}

/// What a type variable may stand for.
const PLAIN: [Type; 4] = [Type::Int, Type::String, Type::Bool, Type::Double];

/// Texts, some of which can be read as something else.
const TEXTS: [&str; 12] = [
    "'ab'",
    "''",
    "'é,x'",
    "'1.2.3'",
    "'10.0.0.0/8'",
    "'10.0.0.1'",
    "'1h'",
    "'1Gi'",
    "'7'",
    "'true'",
    "'2026-02-03T04:05:06Z'",
    "'https://a.b/c'",
];

impl<'f> Maker<'f> {
    fn new(functions: &'f Functions) -> Self {
        let mut names: Vec<&'static str> = functions.names().collect();
        names.sort_unstable();
        let of = |name: &'static str| functions.get(name).into_iter().flatten().map(move |overload| (name, overload));
        let overloads = names.into_iter().flat_map(of).collect();
        Maker { random: 0, overloads, vars: Vec::new(), named: 0, text: None }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end.max(1) as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn plain(&mut self) -> Type {
        let at = self.below(PLAIN.len());
        PLAIN[at].clone()
    }

    /// An expression of a type.
    fn expr(&mut self, want: &Type, depth: usize) -> String {
        if depth == 0 {
            return self.leaf(want);
        }
        match self.below(4) {
            0 => self.leaf(want),
            1 => match self.macros(want, depth - 1) {
                Some(made) => made,
                None => self.leaf(want),
            },
            _ => {
                let fitting: Vec<(&'static str, &'f Overload, BTreeMap<u32, Type>)> = self
                    .overloads
                    .iter()
                    .filter(|(name, _)| spelled(name))
                    .filter_map(|(name, overload)| {
                        let mut bound = BTreeMap::new();
                        unify(&overload.result, want, &mut bound).then_some((*name, *overload, bound))
                    })
                    .collect();
                if fitting.is_empty() {
                    return self.leaf(want);
                }
                let (name, overload, bound) = fitting[self.below(fitting.len())].clone();
                self.call(name, overload, bound, depth - 1)
            }
        }
    }

    fn leaf(&mut self, want: &Type) -> String {
        let known: Vec<String> = self.vars.iter().filter(|(_, ty)| ty == want).map(|(name, _)| name.clone()).collect();
        if !known.is_empty() && self.below(2) == 0 {
            return known[self.below(known.len())].clone();
        }
        let text = match want {
            Type::Null => "null",
            Type::Bool => self.pick(&["true", "self.b", "has(self.opt)", "oldSelf.hasValue()"]),
            Type::Int => self.pick(&["1", "self.i", "-3", "0", "self.m['a']", "oldSelf.orValue(self).i"]),
            Type::Uint => self.pick(&["1u", "7u", "uint(self.li.size())"]),
            Type::Double => self.pick(&["1.5", "self.d", "-0.25"]),
            Type::String => match self.text {
                Some(text) => text,
                None => match self.below(2) {
                    0 => self.pick(&TEXTS),
                    _ => self.pick(&["self.s", "self.o.a", "self.?opt.orValue('n')", "self.ls[0]"]),
                },
            },
            Type::Bytes => self.pick(&["b'ab'", "bytes(self.s)", "self.by"]),
            Type::Duration => self.pick(&["duration('1h2m')", "self.du"]),
            Type::Timestamp => self.pick(&["timestamp('2026-02-03T04:05:06Z')", "self.at"]),
            Type::List(of) => {
                if **of == Type::Int && self.below(2) == 0 {
                    return "self.li".into();
                }
                if **of == Type::String && self.below(2) == 0 {
                    return self.pick(&["self.ls", "self.set", "self.objects.map(o, o.a)"]).into();
                }
                return format!("[{}, {}]", self.leaf(of), self.leaf(of));
            }
            Type::Map(kv) => {
                if (&kv.0, &kv.1) == (&Type::String, &Type::Int) && self.below(2) == 0 {
                    return "self.m".into();
                }
                return format!("{{{}: {}}}", self.leaf(&kv.0), self.leaf(&kv.1));
            }
            Type::Optional(of) => return format!("optional.of({})", self.leaf(of)),
            Type::Type(of) => return format!("type({})", self.leaf(of)),
            Type::Opaque("kubernetes.Quantity") => self.pick(&["quantity('1Gi')", "quantity('-1.5')"]),
            Type::Opaque("kubernetes.URL") => "url('https://a.b:1/c?d=e')",
            Type::Opaque("net.IP") => self.pick(&["ip('10.0.0.1')", "ip('::1')"]),
            Type::Opaque("net.CIDR") => self.pick(&["cidr('10.0.0.0/8')", "cidr('fd00::/8')"]),
            Type::Opaque("kubernetes.NamedFormat") => "format.dns1123Label()",
            Type::Opaque("kubernetes.Semver") => self.pick(&["semver('1.2.3')", "semver('v1', true)"]),
            Type::Opaque("kubernetes.authorization.Authorizer") => "authorizer",
            Type::Opaque("kubernetes.authorization.PathCheck") => "authorizer.path('/x')",
            Type::Opaque("kubernetes.authorization.GroupCheck") => "authorizer.group('g')",
            Type::Opaque("kubernetes.authorization.ResourceCheck") => "authorizer.group('').resource('pods')",
            Type::Opaque("kubernetes.authorization.Decision") => "authorizer.path('/x').check('get')",
            other => panic!("no expression of type {other} is known: add one"),
        };
        text.into()
    }

    /// Macros that make a value of the type, over a list or a map of something.
    fn macros(&mut self, want: &Type, depth: usize) -> Option<String> {
        let of = self.plain();
        let list = self.expr(&Type::list(of.clone()), depth);
        let map = self.expr(&Type::map(Type::String, of.clone()), depth);
        let at = self.vars.len();
        let mut bind = |ty: Type| {
            self.named += 1;
            let name = format!("x{}", self.named);
            self.vars.push((name.clone(), ty));
            name
        };
        let (key, value) = match self.random % 2 {
            0 => (bind(Type::Int), bind(of.clone())),
            _ => (bind(Type::String), bind(of.clone())),
        };
        let two = if self.random.is_multiple_of(2) { list.clone() } else { map };
        let of_item = |maker: &mut Self, ty: &Type| {
            // Of the two, a macro of one variable has the second.
            let hidden = maker.vars.remove(at);
            let made = maker.expr(ty, depth);
            maker.vars.insert(at, hidden);
            made
        };
        let made = match want {
            Type::Bool => {
                let one = self.pick(&["all", "exists", "exists_one"]);
                match self.below(2) {
                    0 => format!("{list}.{one}({value}, {})", of_item(self, want)),
                    _ => format!("{two}.{}({key}, {value}, {})", one.replace("_one", "One"), self.expr(want, depth)),
                }
            }
            Type::List(item) => match self.below(4) {
                0 => format!("{list}.map({value}, {})", of_item(self, item)),
                1 => format!("{list}.map({value}, {}, {})", of_item(self, &Type::Bool), of_item(self, item)),
                2 if **item == of => format!("{list}.filter({value}, {})", of_item(self, &Type::Bool)),
                _ => format!("{two}.transformList({key}, {value}, {})", self.expr(item, depth)),
            },
            Type::Map(kv) if kv.0 == Type::String => {
                let source = self.pick(&["self.m", "{'k': 1}"]);
                format!("{source}.transformMap({key}, {value}, {})", {
                    self.vars.truncate(at);
                    self.expr(&kv.1, depth)
                })
            }
            Type::Optional(inner) => {
                let optional = format!("optional.of({})", self.vars_free(at, &of, depth));
                match self.below(2) {
                    0 => format!("{optional}.optMap({value}, {})", of_item(self, inner)),
                    _ => format!("{optional}.optFlatMap({value}, {})", of_item(self, want)),
                }
            }
            _ => {
                let condition = self.vars_free(at, &Type::Bool, depth);
                format!("({condition} ? {} : {})", self.vars_free(at, want, depth), self.vars_free(at, want, depth))
            }
        };
        self.vars.truncate(at);
        Some(made)
    }

    /// An expression in which the newest variables do not stand.
    fn vars_free(&mut self, at: usize, ty: &Type, depth: usize) -> String {
        let newest = self.vars.split_off(at);
        let made = self.expr(ty, depth);
        self.vars.extend(newest);
        made
    }

    fn call(&mut self, name: &str, overload: &Overload, mut bound: BTreeMap<u32, Type>, depth: usize) -> String {
        for var in 0..overload.vars {
            // A key is no double.
            let key = overload.params.iter().any(|param| matches!(param, Type::Map(kv) if kv.0 == Type::Var(var)));
            let ty = if key { Type::String } else { self.plain() };
            bound.entry(var).or_insert(ty);
        }
        let args: Vec<String> = overload
            .params
            .iter()
            .map(|param| {
                let any = self.plain();
                self.expr(&substituted(param, &bound, &any), depth)
            })
            .collect();
        match name {
            "@in" => return format!("({} in {})", args[0], args[1]),
            "_[_]" => return format!("{}[{}]", args[0], args[1]),
            "_[?_]" => return format!("{}[?{}]", args[0], args[1]),
            "!_" | "-_" => return format!("{}({})", &name[..1], args[0]),
            "math.@min" => return format!("math.least({})", args.join(", ")),
            "math.@max" => return format!("math.greatest({})", args.join(", ")),
            _ => {}
        }
        if let Some(operator) = name.strip_prefix('_').and_then(|name| name.strip_suffix('_')) {
            return format!("({} {operator} {})", args[0], args[1]);
        }
        match overload.member {
            true => format!("{}.{name}({})", args[0], args[1..].join(", ")),
            false => format!("{name}({})", args.join(", ")),
        }
    }
}

/// Whether a function is called by a name that can be written.
fn spelled(name: &str) -> bool {
    !name.contains('@') || matches!(name, "@in" | "math.@min" | "math.@max")
}

fn unify(of: &Type, want: &Type, bound: &mut BTreeMap<u32, Type>) -> bool {
    match (of, want) {
        (Type::Var(var), want) => bound.entry(*var).or_insert_with(|| want.clone()) == want,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) | (Type::Type(a), Type::Type(b)) => {
            unify(a, b, bound)
        }
        (Type::Map(a), Type::Map(b)) => unify(&a.0, &b.0, bound) && unify(&a.1, &b.1, bound),
        (of, want) => of == want,
    }
}

/// The type without variables, and with `any` where anything may stand: an expression of type `dyn` may fail with a type
/// error, so there are none.
fn substituted(ty: &Type, bound: &BTreeMap<u32, Type>, any: &Type) -> Type {
    match ty {
        Type::Dyn => any.clone(),
        Type::Var(var) => bound[var].clone(),
        Type::List(of) => Type::list(substituted(of, bound, any)),
        Type::Optional(of) => Type::optional(substituted(of, bound, any)),
        Type::Type(of) => Type::Type(Arc::new(substituted(of, bound, any))),
        Type::Map(kv) => Type::map(substituted(&kv.0, bound, any), substituted(&kv.1, bound, any)),
        other => other.clone(),
    }
}

fn schema() -> Arc<DeclType> {
    let object = json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}});
    let schema = json!({"type": "object", "properties": {
        "b": {"type": "boolean"}, "i": {"type": "integer"}, "d": {"type": "number"},
        "s": {"type": "string", "maxLength": 12}, "opt": {"type": "string", "maxLength": 12},
        "du": {"type": "string", "format": "duration"}, "at": {"type": "string", "format": "date-time"},
        "by": {"type": "string", "format": "byte", "maxLength": 12},
        "li": {"type": "array", "maxItems": 6, "items": {"type": "integer"}},
        "ls": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 6}},
        "set": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 6}},
        "m": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "integer"}},
        "o": object,
        "objects": {"type": "array", "maxItems": 4, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
            "items": object}
    }});
    DeclType::from_structural(&schema, "self", false).unwrap()
}

#[derive(Debug)]
struct Everything;

impl Authorizer for Everything {
    fn authorize(&self, _: &Attributes) -> Decision {
        Decision { allowed: true, reason: "because".into(), ..Decision::default() }
    }
}

/// What is wrong with calls of the overloads of an environment, and which were never run to a value.
fn tried(env: &Env, rounds: u64) -> (String, Vec<&'static str>) {
    let decl = schema();
    let env = env
        .clone()
        .declare_schema("self", decl.clone())
        .declare_optional_schema("oldSelf", &decl)
        .declare("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"));
    let objects = [
        json!({"b": true, "i": 2, "d": 0.5, "s": "héllo,1Gi", "du": "90s", "at": "2026-01-02T03:04:05Z", "by": "aGk=",
            "li": [3, 1, 2], "ls": ["b", "a"], "set": ["x", "y"], "m": {"a": 1, "k": 2}, "o": {"a": "oa"},
            "objects": [{"a": "p"}, {"a": "q"}], "opt": "given"}),
        json!({"b": false, "i": -1, "d": -2.0, "s": "", "du": "0s", "at": "1999-12-31T23:59:59Z", "by": "", "li": [],
            "ls": [], "set": [], "m": {}, "o": {}, "objects": []}),
        // As large as the schema allows.
        json!({"b": true, "i": i64::MAX, "d": 1e300, "s": "é".repeat(12), "opt": "z".repeat(12), "du": "9999h59m59s",
            "at": "9999-12-31T23:59:59Z", "by": "aGVsbG8gd28=", "li": [6, 5, 4, 3, 2, 1], "ls": vec!["ünïcod"; 5],
            "set": ["aaaaaa", "bbbbbb", "cccccc", "dddddd", "eeeeee"], "m": {"a": 1, "b": 2, "c": 3, "d": 4},
            "o": {"a": "fffff"}, "objects": [{"a": "aaaaa"}, {"a": "bbbbb"}, {"a": "ccccc"}, {"a": "ddddd"}]}),
    ];
    let functions = env.functions.clone();
    let mut maker = Maker::new(&functions);
    let (mut wrong, mut never) = (String::new(), Vec::new());
    for (name, overload) in maker.overloads.clone().into_iter().filter(|(name, _)| spelled(name)) {
        let mut ran = false;
        for round in 0..rounds {
            maker.random = round.wrapping_mul(0x5851_f42d_4c95_7f2d);
            maker.vars.clear();
            // First plain calls with each of the texts, then any.
            maker.text = TEXTS.get(round as usize).copied();
            let depth = if maker.text.is_some() { 0 } else { round as usize % 3 };
            let source = maker.call(name, overload, BTreeMap::new(), depth);
            let program = match env.compile(&source) {
                Ok(program) => program,
                Err(errors) => {
                    // A literal may be no duration; of types, names and syntax nothing is wrong.
                    let text = errors.to_string();
                    let meant = ["no matching overload", "undeclared", "undefined", "Syntax error", "incompatible"];
                    if meant.iter().any(|word| text.contains(word)) {
                        let _ = writeln!(wrong, "{}: {source}: {text}", overload.id);
                    }
                    continue;
                }
            };
            for (object, old) in objects.iter().zip([None, Some(&objects[0]), Some(&objects[2])]) {
                let old = old.map(|old| Value::typed(old, &decl).unwrap());
                let activation = Activation::new()
                    .with("self", Value::typed(object, &decl).unwrap())
                    .with("oldSelf", Value::Optional(old.map(Arc::new)))
                    .with("authorizer", Value::authorizer(&Everything));
                let mut budget = Budget::kubernetes();
                match program.evaluate(&activation, &mut budget) {
                    Err(EvalError::NoSuchOverload(what)) => {
                        let _ = writeln!(wrong, "{}: type error {what} in {source}", overload.id);
                    }
                    Ok(_) => ran = true,
                    Err(_) => {}
                }
                let estimate = program.estimate(Fidelity::Sound).max;
                if budget.last_cost() > estimate {
                    let _ = writeln!(wrong, "{}: cost {} > {estimate} of {source}", overload.id, budget.last_cost());
                }
            }
        }
        if !ran {
            never.push(overload.id);
        }
    }
    (wrong, never)
}

#[test]
fn every_overload_is_sound_and_costs_no_more_than_estimated() {
    for (env, rounds) in [(Env::kubernetes_crd(), 36), (Env::templates(), 24)] {
        let (wrong, never) = tried(&env, rounds);
        assert!(wrong.is_empty(), "{} things wrong:\n{wrong}", wrong.lines().count());
        // No number is a duration, though the function is declared.
        assert_eq!(never, ["int64_to_duration"], "never ran to a value");
    }
}
