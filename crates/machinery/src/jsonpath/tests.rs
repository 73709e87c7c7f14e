use proptest::prelude::*;
use serde_json::json;

use super::*;

fn data() -> Value {
    json!({
        "kind": "List",
        "items": [
            {"name": "a", "n": 1, "labels": {"app.kubernetes.io/name": "x"}, "conditions": [{"type": "Ready", "status": "True"}]},
            {"name": "b", "n": 2, "f": 1.5, "conditions": [{"type": "Ready", "status": "False"}, {"type": "Old"}]},
            {"name": "c", "n": 3, "ok": true, "none": null},
        ],
        "matrix": [[1, 2], [3]],
    })
}

#[test]
fn templates_are_rendered() {
    for (text, expected) in [
        ("hello", "hello"),
        ("{.kind}", "List"),
        ("{$.kind}{@.kind}", "ListList"),
        ("{['kind']}", "List"),
        ("x{.missing}y", "xy"),
        ("{.items[*].name}", "a b c"),
        ("{.items[0].name}", "a"),
        ("{.items[-1].name}", "c"),
        ("{.items[0:2].name}", "a b"),
        ("{.items[1:].name}", "b c"),
        ("{.items[:-1].name}", "a b"),
        ("{.items[::2].name}", "a c"),
        ("{.items[0,2].name}", "a c"),
        ("{.items[*]['name','n']}", "a b c 1 2 3"),
        ("{.items[0].labels.app\\.kubernetes\\.io/name}", "x"),
        ("{.items[0].labels['app\\.kubernetes\\.io/name']}", "x"),
        ("{.items[?(@.name==\"b\")].n}", "2"),
        ("{.items[?(@.name=='b')].n}", "2"),
        ("{.items[?(@.n>1)].name}", "b c"),
        ("{.items[?(@.n!=1)].name}", "b c"),
        ("{.items[?(@.n<=2)].name}", "a b"),
        ("{.items[?(@.ok==true)].name}", "c"),
        ("{.items[?(@.f)].name}", "b"),
        ("{.items[*].conditions[?(@.type==\"Ready\")].status}", "True False"),
        ("{..name}", "a b c"),
        ("{..['none.n','kind']}", "List"),
        ("{.items[1].f}", "1.5"),
        ("{.items[2].none}", "null"),
        ("{.items[0].labels}", "{\"app.kubernetes.io/name\":\"x\"}"),
        ("{.matrix[*][0]}", "1 3"),
        ("{range .items[*]}{.name}={.n};{end}", "a=1;b=2;c=3;"),
        (
            "{range .items[*]}{.name}{range .conditions[*]}:{.type}{end}{\"\\n\"}{end}done",
            "a:Ready\nb:Ready:Old\nc\ndone",
        ),
        ("{range .nothing[*]}{.x}{end}after", "after"),
        ("{1}{true}{'q'}", "1trueq"),
    ] {
        let template = Template::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(
            template.render(&data(), true).unwrap_or_else(|error| panic!("{text}: {error}")),
            expected,
            "{text}"
        );
    }
}

#[test]
fn bad_paths_are_refused() {
    for text in [
        "{",
        "{.a",
        "{.a[0",
        "{.a[x]}",
        "{.a[1:2:3:4]}",
        "{.a[-]}",
        "{....a}",
        "{\"a}",
        "{.a[?(@.b==1}",
        "{.a[?(@.b==1)}",
        "{,}",
        "{#}",
        "{-}",
        "{\"\\q\"}",
        "{.a\n}",
        "{.a[\"b\"]}",
    ] {
        assert!(Template::parse(text).is_err(), "{text}");
    }
    assert!(Template::parse(&format!("{{{}}}", ".a".repeat(MAX_TEXT))).is_err());
    assert!(JsonPath::parse(".a}{.b").is_err());
}

#[test]
fn paths_that_make_no_sense_on_a_value() {
    for text in [
        "{.items[3]}",
        "{.items[-4]}",
        "{.items[2:1]}",
        "{.items[0:2:0]}",
        "{.kind[0]}",
        "{.kind[?(@.a)]}",
        "{.items[?(@.n==\"1\")]}",
        "{.items[?(@.n=1)]}",
        "{end}",
        "{foo}",
    ] {
        let template = Template::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(template.render(&data(), true).is_err(), "{text}");
    }
    assert!(Template::parse("{.missing}").unwrap().render(&data(), false).is_err());
}

#[test]
fn columns() {
    let first = |path: &str| JsonPath::parse(path).unwrap().first(&data()).map(Cow::into_owned);
    assert_eq!(first(".items[*].n"), Some(json!(1)));
    assert_eq!(first(".missing"), None);
    assert_eq!(first(".items[9]"), None);
}

#[test]
fn work_is_bounded() {
    let mut deep = json!("x");
    for _ in 0..100 {
        deep = json!({"a": deep.clone(), "b": 1});
    }
    assert!(Template::parse("{..a..a..a..a..a..a}").unwrap().render(&deep, true).is_err());
}

#[test]
fn floats_are_written_as_go_does() {
    for (value, expected) in
        [(1.5, "1.5"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (1e-5, "1e-05"), (-2.5e-7, "-2.5e-07")]
    {
        assert_eq!(go_float(value), expected);
    }
}

proptest! {
    #[test]
    fn no_template_panics(text in "[{}.\\[\\]a0*?(@=')\"\\\\,:-]{0,24}") {
        if let Ok(template) = Template::parse(&text) {
            let _ = template.render(&data(), true);
        }
    }
}
