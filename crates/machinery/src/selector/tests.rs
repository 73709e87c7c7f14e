use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn check(text: &str, expected: &str) {
    match Selector::parse(text) {
        Ok(selector) => assert_eq!(selector.to_string(), expected, "{text}"),
        Err(error) => assert_eq!(format!("error: {error}"), expected, "{text}"),
    }
}

#[test]
fn label_selectors_are_parsed() {
    check("", "");
    check(" ", "");
    check("x", "x");
    check("!x", "!x");
    check("x=a,y=b,z=c", "x=a,y=b,z=c");
    check("z=c , x==a\t,y!=b", "x==a,y!=b,z=c");
    check("x in (b,a,b)", "x in (a,b)");
    check("x notin (a)", "x notin (a)");
    check("x in ()", "x in ()");
    check("x in (,a)", "x in (,a)");
    check("x in (a,,b)", "x in (,a,b)");
    check("x in (a,)", "x in (,a)");
    check("x=", "x=");
    check("x=,y", "x=,y");
    check("x>1,y<5", "x>1,y<5");
    check("in in (in,notin)", "in in (in,notin)");
    check("a.b/c=d", "a.b/c=d");
}

#[test]
fn bad_label_selectors_are_refused() {
    check(",", "error: found ',', expected: !, identifier, or 'end of string'");
    check("x,", "error: found '', expected: identifier after ','");
    check("x=a b", "error: found 'b', expected: ',' or 'end of string'");
    check("!x=a", "error: found '=', expected: ',' or 'end of string'");
    check("x a", "error: unable to parse requirement: found 'a', expected: in, notin, =, ==, !=, gt, lt");
    check("x in a", "error: unable to parse requirement: found 'a' expected: '('");
    check("x in (a", "error: unable to parse requirement: found '', expected: ',' or ')'");
    check("x in (", "error: unable to parse requirement: found '', expected: ',', ')' or identifier");
    check("x in (a,=)", "error: unable to parse requirement: found '=', expected: ',', or identifier");
    check("x==!", "error: unable to parse requirement: found '!', expected: identifier");
    check("!", "error: unable to parse requirement: found '', expected: identifier");
    for text in ["x>a", "x=a/b", "-x", "a/b/c", "x in (a/b)", "x=-"] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn labels_are_matched() {
    let labels = json!({"app": "web", "n": "5", "empty": ""});
    let labels = labels.as_object().unwrap();
    for (text, expected) in [
        ("", true),
        ("app", true),
        ("!app", false),
        ("!other", true),
        ("app=web", true),
        ("app!=web", false),
        ("other!=web", true),
        ("other=", false),
        ("empty=", true),
        ("app in (api,web)", true),
        ("app notin (api)", true),
        ("other notin (api)", true),
        ("other in (api)", false),
        ("n>4", true),
        ("n>5", false),
        ("n<6", true),
        ("app>1", false),
        ("app=web,n>9", false),
    ] {
        assert_eq!(Selector::parse(text).unwrap().matches(labels), expected, "{text}");
    }
    assert!(!Selector::nothing().matches(labels));
    assert!(Selector::everything().matches(labels));
    assert!(Selector::from_labels(labels).matches(labels));
}

#[test]
fn exact_values_are_found() {
    for (text, expected) in [("a=x", Some("x")), ("a in (x)", Some("x")), ("a in (x,y)", None), ("a", None), ("", None)]
    {
        assert_eq!(Selector::parse(text).unwrap().exact("a"), expected, "{text}");
    }
    let fields = FieldSelector::parse("a=x,b!=y,a=z").unwrap();
    assert_eq!((fields.exact("a"), fields.exact("b")), (Some("x"), None));
}

#[test]
fn selector_objects() {
    let from = |object: Value| Selector::from_object(&object).map(|selector| selector.to_string());
    assert!(Selector::from_object(&Value::Null).unwrap().is_nothing());
    assert!(Selector::from_object(&json!({})).unwrap().is_empty());
    let object = json!({
        "matchLabels": {"b": "c"},
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "d", "operator": "DoesNotExist"},
        ],
    });
    assert_eq!(from(object).unwrap(), "a in (x,y),b=c,!d");
    assert!(from(json!({"matchExpressions": [{"key": "a", "operator": "Foo"}]})).is_err());
    assert!(from(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})).is_err());
    assert!(from(json!([])).is_err());
}

#[test]
fn selector_objects_are_validated() {
    let path = Path::root("selector");
    for (object, expected) in [
        (json!({"matchLabels": {"a": "b"}}), ""),
        (json!({"matchLabels": {"-": "b"}}), "selector.matchLabels"),
        (json!({"matchLabels": {"a": "-"}}), "selector.matchLabels"),
        (json!({"matchExpressions": [{"key": "a", "operator": "In"}]}), "selector.matchExpressions[0].values"),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
            "selector.matchExpressions[0].values",
        ),
        (json!({"matchExpressions": [{"key": "a", "operator": "is"}]}), "selector.matchExpressions[0].operator"),
        (json!({"matchExpressions": [{"key": "-", "operator": "Exists"}]}), "selector.matchExpressions[0].key"),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "-"]}]}),
            "selector.matchExpressions[0].values[1]",
        ),
    ] {
        let errors = validate_label_selector(&object, false, &path);
        let found: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(found.join(" "), expected, "{object}");
    }
}

#[test]
fn field_selectors() {
    for (text, expected) in [
        ("", ""),
        ("a=b", "a=b"),
        ("a==b", "a=b"),
        ("b!=c,a=d", "a=d,b!=c"),
        ("a=,b!=", "a=,b!="),
        (",a=b,", "a=b"),
        (r"a=\,\=\\", r"a=\,\=\\"),
        ("x", "error: invalid selector: 'x'; can't understand 'x'"),
        ("a=b=c", "error: invalid field selector: unescaped character in value: 61"),
        (r"a=\x", r"error: invalid field selector: invalid escape sequence: \x"),
        ("a=b\\", "error: invalid field selector: invalid escape sequence: \\"),
    ] {
        let found = match FieldSelector::parse(text) {
            Ok(selector) => selector.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn fields_are_matched() {
    let fields = |name: &str| (name == "metadata.name").then_some(Cow::Borrowed("web"));
    for (text, expected) in [
        ("", true),
        ("metadata.name=web", true),
        ("metadata.name!=web", false),
        ("spec.x=", true),
        ("spec.x!=a", true),
        ("metadata.name=web,spec.x=a", false),
    ] {
        assert_eq!(FieldSelector::parse(text).unwrap().matches(fields), expected, "{text}");
    }
    let refused =
        FieldSelector::parse("spec.x=a").unwrap().transform(|requirement| Err::<_, String>(requirement.field));
    assert_eq!(refused.unwrap_err(), "spec.x");
}

proptest! {
    #[test]
    fn label_selectors_survive_writing(text in "!?[a-z]( in \\([a-z]?(,[a-z]){0,3}\\)|=[a-z]?|!=[a-z]|>[0-9]|)(,[a-z](=[a-z])?){0,2}") {
        if let Ok(selector) = Selector::parse(&text) {
            prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
        }
    }

    #[test]
    fn escaped_values_survive(value in "\\PC{0,10}|[\\\\,=a]{0,8}") {
        let escaped = escape(&value);
        prop_assert_eq!(unescape(&escaped).unwrap(), value.as_str());
        let selector = FieldSelector::equals("f", &value);
        prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn no_text_panics(text in "[a-c!=<>(), in\\\\\u{0}]{0,20}") {
        let _ = Selector::parse(&text);
        let _ = FieldSelector::parse(&text);
    }
}
