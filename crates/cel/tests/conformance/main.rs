//! The specification's own test cases (Go module `cel.dev/expr`, downloaded if need be, or the
//! directory that `CEL_CONFORMANCE` names). They are read, never copied. Messages of protobuf are
//! no part of our CEL: tests that need them are excepted and counted.

mod textproto;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use conductor_cel::{Activation, Budget, Env, Key, Str, Timestamp, Type, Value};
use textproto::{Message, Node};

/// The version of the specification.
const VERSION: &str = "v0.25.3";

/// Tests that must pass, per file. Numbers go up, never down.
const MINIMUM: &[(&str, usize)] = &[
    ("basic", 41),
    ("bindings_ext", 8),
    ("comparisons", 330),
    ("conversions", 109),
    ("encoders_ext", 4),
    ("fields", 60),
    ("fp_math", 30),
    ("integer_math", 64),
    ("lists", 39),
    ("lists_ext", 50),
    ("logic", 25),
    ("macros", 44),
    ("macros2", 46),
    ("math_ext", 199),
    ("namespace", 14),
    ("network_ext", 67),
    ("optionals", 59),
    ("parse", 176),
    ("plumbing", 5),
    ("string", 51),
    ("string_ext", 213),
    ("timestamps", 77),
    ("type_deduction", 21),
];

/// What is excepted, by file and test name prefix, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("dynamic", "value_null/literal", "protobuf messages"),
    ("lists_ext", "range/negative_error", "refused by newer versions than Kubernetes has; ours yields an empty list"),
    ("lists_ext", "range/limit_exceeded_error", "limited by the budget, not by the length"),
    ("network_ext", "ipv4/ipv4_equals_ipv6", "Kubernetes refuses IPv4 within IPv6"),
    ("network_ext", "ipv4/ipv4_not_equals_ipv6", "Kubernetes refuses IPv4 within IPv6"),
    ("type_deduction", "functions/function_result_type", "declares a function of its own"),
    ("type_deduction", "type_parameters/multiple_parameters", "declares a function of its own"),
];

/// Files about things that are not in our CEL.
const FILES: &[(&str, &str)] = &[
    ("proto2", "protobuf messages"),
    ("proto2_ext", "protobuf messages"),
    ("proto3", "protobuf messages"),
    ("enums", "protobuf enums"),
    ("wrappers", "protobuf wrapper messages"),
    ("unknowns", "partial evaluation"),
    ("block_ext", "cel.block is made by optimizers, not written"),
];

fn directory() -> Option<PathBuf> {
    if let Ok(path) = std::env::var("CEL_CONFORMANCE") {
        return Some(path.into());
    }
    // From the module cache if it is there already.
    let mut command = Command::new("go");
    command.args(["mod", "download", "-json", &format!("cel.dev/expr@{VERSION}")]).env("GOFLAGS", "-mod=mod");
    let output = command.current_dir(std::env::temp_dir()).output().ok()?.stdout;
    let text = String::from_utf8(output).ok()?;
    let dir = text.lines().find_map(|line| line.trim().strip_prefix("\"Dir\": \"")?.strip_suffix("\","))?;
    Some(PathBuf::from(dir).join("tests/simple/testdata"))
}

#[derive(Default)]
struct Count {
    passed: usize,
    excepted: BTreeMap<String, usize>,
    failed: Vec<String>,
}

#[test]
fn conformance() {
    let Some(directory) = directory() else {
        eprintln!(
            "SKIPPED: no conformance data: cel.dev/expr {VERSION} cannot be had; install Go, or set CEL_CONFORMANCE to its tests/simple/testdata"
        );
        return;
    };
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|p| p.extension().is_some_and(|e| e == "textproto")) {
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let parsed =
            textproto::parse(&std::fs::read_to_string(path).unwrap()).unwrap_or_else(|e| panic!("{file}: {e}"));
        let count = counts.entry(file.clone()).or_default();
        for section in parsed.messages("section") {
            let section_name = section.text("name").unwrap_or_default();
            for test in section.messages("test") {
                let name = format!("{section_name}/{}", test.text("name").unwrap_or_default());
                if let Some(reason) = exception(&file, &name, test) {
                    *count.excepted.entry(reason.to_owned()).or_default() += 1;
                    continue;
                }
                match run(test) {
                    // The checker cannot be turned off, so what it refuses is never evaluated.
                    Err(why) if why.starts_with("compile") && unchecked(test) => {
                        *count.excepted.entry("ill-typed, needs the checker off".to_owned()).or_default() += 1;
                    }
                    Ok(()) => count.passed += 1,
                    Err(why) => {
                        count.failed.push(format!("{file}/{name}: {}: {why}", test.text("expr").unwrap_or_default()))
                    }
                }
            }
        }
    }
    let mut failures = Vec::new();
    let mut total = (0, 0, 0);
    for (file, count) in &counts {
        let excepted: usize = count.excepted.values().sum();
        println!(
            "{file:20} passed {:4}  excepted {excepted:4}  failed {:3}  {:?}",
            count.passed,
            count.failed.len(),
            count.excepted
        );
        total = (total.0 + count.passed, total.1 + excepted, total.2 + count.failed.len());
        failures.extend(count.failed.iter().cloned());
    }
    println!("{:20} passed {:4}  excepted {:4}  failed {:3}", "total", total.0, total.1, total.2);
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    for (file, minimum) in MINIMUM {
        let passed = counts.get(*file).map_or(0, |c| c.passed);
        assert!(passed >= *minimum, "{file}: {passed} passed, expected at least {minimum}");
    }
}

fn exception(file: &str, name: &str, test: &Message) -> Option<&'static str> {
    if let Some((_, reason)) = FILES.iter().find(|(f, _)| *f == file) {
        return Some(reason);
    }
    if let Some((_, _, reason)) = EXCEPTIONS.iter().find(|(f, prefix, _)| *f == file && name.starts_with(prefix)) {
        return Some(reason);
    }
    const MESSAGES: [&str; 17] = [
        "TestAllTypes",
        "object_value",
        "message_type",
        "wrapper",
        "google.protobuf.Any",
        "google.protobuf.Struct",
        "google.protobuf.Value",
        "google.protobuf.ListValue",
        "google.protobuf.Int",
        "google.protobuf.UInt",
        "google.protobuf.Bool",
        "google.protobuf.String",
        "google.protobuf.Bytes",
        "google.protobuf.Double",
        "google.protobuf.Float",
        "google.protobuf.Timestamp{",
        "google.protobuf.Duration{",
    ];
    MESSAGES.iter().any(|word| test.mentions(word)).then_some("protobuf messages")
}

fn unchecked(test: &Message) -> bool {
    test.text("disable_check").as_deref() == Some("true")
}

fn run(test: &Message) -> Result<(), String> {
    let expr = test.text("expr").unwrap_or_default();
    let unchecked = unchecked(test);
    let compile_error = test.text("name").is_some_and(|n| n.contains("compile_error"));
    let mut env = Env::standard().container(&test.text("container").unwrap_or_default());
    for declared in test.messages("type_env") {
        let name = declared.text("name").unwrap_or_default();
        if let Some(ident) = declared.message("ident") {
            let t = ident.message("type").ok_or("declaration without type")?;
            env = env.declare(&name, to_type(t)?);
        }
    }
    let mut bindings = Vec::new();
    for binding in test.messages("bindings") {
        let name = binding.text("key").unwrap_or_default();
        let value = binding.message("value").and_then(|v| v.message("value")).ok_or("binding without value")?;
        if unchecked {
            env = env.declare(&name, Type::Dyn);
        }
        bindings.push((name, to_value(value)?));
    }
    let wants_error = test.get("eval_error").is_some() || test.get("any_eval_errors").is_some();
    let program = match env.compile(&expr) {
        Ok(program) => program,
        Err(_) if wants_error && (unchecked || compile_error) => return Ok(()),
        Err(e) => return Err(format!("compile: {e}")),
    };
    if let Some(deduced) = test.message("typed_result").and_then(|t| t.message("deduced_type")) {
        let (found, wanted) = (program.output_type().to_string(), to_type(deduced)?.to_string());
        if found != wanted {
            return Err(format!("type {found}, expected {wanted}"));
        }
    }
    if test.text("check_only").as_deref() == Some("true") {
        return Ok(());
    }
    let mut activation = Activation::new();
    for (name, value) in &bindings {
        activation = activation.with(name, value.clone());
    }
    let result = program.evaluate(&activation, &mut Budget::new(100_000_000, 100_000_000));
    let expected = test.message("value").or_else(|| test.message("typed_result").and_then(|t| t.message("result")));
    match (result, expected) {
        (Err(_), _) if wants_error => Ok(()),
        (Ok(value), _) if wants_error => Err(format!("{value:?}, expected an error")),
        (Err(e), _) => Err(format!("evaluate: {e}")),
        (Ok(value), Some(expected)) => {
            let expected = to_value(expected)?;
            if same(&value, &expected) { Ok(()) } else { Err(format!("{value:?}, expected {expected:?}")) }
        }
        (Ok(Value::Bool(true)), None) => Ok(()),
        (Ok(value), None) => Err(format!("{value:?}, expected true")),
    }
}

fn to_type(t: &Message) -> Result<Type, String> {
    let (kind, node) = t.0.first().ok_or("empty type")?;
    let word = match node {
        Node::Scalar(s) => String::from_utf8_lossy(s).into_owned(),
        Node::Message(_) => String::new(),
    };
    let inner = |m: &Node, field: &str| match m {
        Node::Message(m) => m.message(field).map_or(Ok(Type::Dyn), to_type),
        Node::Scalar(_) => Err("expected a message".to_owned()),
    };
    Ok(match (kind.as_str(), word.as_str()) {
        ("primitive", "BOOL") => Type::Bool,
        ("primitive", "INT64") => Type::Int,
        ("primitive", "UINT64") => Type::Uint,
        ("primitive", "DOUBLE") => Type::Double,
        ("primitive", "STRING") => Type::String,
        ("primitive", "BYTES") => Type::Bytes,
        ("well_known", "TIMESTAMP") => Type::Timestamp,
        ("well_known", "DURATION") => Type::Duration,
        ("dyn", _) => Type::Dyn,
        ("null", _) => Type::Null,
        ("list_type", _) => Type::list(inner(node, "elem_type")?),
        ("map_type", _) => Type::map(inner(node, "key_type")?, inner(node, "value_type")?),
        ("type", _) => match node {
            Node::Message(m) if !m.0.is_empty() => Type::Type(Arc::new(to_type(m)?)),
            _ => Type::Type(Arc::new(Type::Dyn)),
        },
        ("type_param", _) => Type::Dyn,
        ("abstract_type", _) => match node {
            Node::Message(m) => {
                let param = m.message("parameter_types").map_or(Ok(Type::Dyn), to_type)?;
                match m.text("name").as_deref() {
                    Some("optional_type") => Type::optional(param),
                    Some("net.IP") => Type::Opaque("net.IP"),
                    Some("net.CIDR") => Type::Opaque("net.CIDR"),
                    other => return Err(format!("abstract type {other:?}")),
                }
            }
            Node::Scalar(_) => return Err("abstract type".into()),
        },
        other => return Err(format!("type {other:?}")),
    })
}

fn to_value(value: &Message) -> Result<Value<'static>, String> {
    let (kind, node) = value.0.first().ok_or("empty value")?;
    let text = || match node {
        Node::Scalar(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Node::Message(_) => String::new(),
    };
    let bad = |e: &dyn std::fmt::Display| format!("{kind}: {e}");
    Ok(match (kind.as_str(), node) {
        ("null_value", _) => Value::Null,
        ("bool_value", _) => Value::Bool(text() == "true"),
        ("int64_value", _) => Value::Int(number(&text()).and_then(|n| i64::try_from(n).ok()).ok_or(bad(&"number"))?),
        ("uint64_value", _) => Value::Uint(number(&text()).and_then(|n| u64::try_from(n).ok()).ok_or(bad(&"number"))?),
        ("double_value", _) => Value::Double(match text().to_ascii_lowercase().as_str() {
            "inf" | "infinity" => f64::INFINITY,
            "-inf" | "-infinity" => f64::NEG_INFINITY,
            other => other.parse().map_err(|e| bad(&e))?,
        }),
        ("string_value", _) => Value::string(text()),
        ("bytes_value", Node::Scalar(bytes)) => Value::Bytes(bytes.as_slice().into()),
        ("type_value", _) => type_value(&text())?,
        ("list_value", Node::Message(m)) => Value::list(m.messages("values").map(to_value).collect::<Result<_, _>>()?),
        ("map_value", Node::Message(m)) => {
            let mut entries = BTreeMap::new();
            for entry in m.messages("entries") {
                let key = match to_value(entry.message("key").ok_or("no key")?)? {
                    Value::Bool(b) => Key::Bool(b),
                    Value::Int(i) => Key::Int(i),
                    Value::Uint(u) => Key::Uint(u),
                    Value::String(s) => Key::String(Str::Shared((*s).into())),
                    other => return Err(format!("key {other:?}")),
                };
                entries.insert(key, to_value(entry.message("value").ok_or("no value")?)?);
            }
            Value::map(entries)
        }
        (other, _) => return Err(format!("value {other}")),
    })
}

fn number(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn type_value(name: &str) -> Result<Value<'static>, String> {
    const NAMES: [&str; 16] = [
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "google.protobuf.Timestamp",
        "google.protobuf.Duration",
        "optional_type",
        "dyn",
        "net.IP",
        "net.CIDR",
    ];
    NAMES.into_iter().find(|n| *n == name).map(Value::Type).ok_or(format!("type {name}"))
}

/// Equality including type: `1` is not `1u` here.
fn same(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Uint(a), Value::Uint(b)) => a == b,
        (Value::Double(a), Value::Double(b)) => a == b || (a.is_nan() && b.is_nan()),
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(x, y)| matches!((x, y), (Ok(x), Ok(y)) if same(&x, &y)))
        }
        (Value::Map(a), Value::Map(b)) => {
            let mut budget = Budget::kubernetes();
            a.len() == b.len()
                && a.keys().iter().all(|k| {
                    matches!((a.get(k, &mut budget), b.get(k, &mut budget)), (Some(Ok(x)), Some(Ok(y))) if same(&x, &y))
                })
        }
        _ => false,
    }
}

#[test]
fn timestamps_read_back() {
    for text in ["2009-02-13T23:31:30Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"] {
        assert_eq!(Timestamp::parse(text).map(|t| t.format()).as_deref(), Some(text));
    }
}
