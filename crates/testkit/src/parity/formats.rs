//! Every format of strings and numbers, and many texts for each.

use serde_json::{Map, Value, json};

use super::random::served;
use super::{Scenario, Step};
use crate::Request;

const FORMATS: [&str; 33] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "date-time",
    "k8s-short-name",
    "k8s-long-name",
    "k8s-uuid",
    "ip",
    "int32",
    "binary",
    "u-u-i-d",
    "of-no-meaning",
];

const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "A",
    "0",
    "-",
    ".",
    "a.b",
    "a..b",
    "a-",
    "-a",
    "a_b",
    "a.B",
    "a b",
    "é",
    "a\n",
    "a.b.c.d",
    "507f1f77bcf86cd799439011",
    "507F1F77BCF86CD799439011",
    "http://a",
    "http://",
    "/a",
    "a:b",
    "http://a b",
    "mailto:a@b",
    "http://[::1]:80/a?b#c",
    "//a",
    "%zz",
    "a@b",
    "a@b.c",
    "a b <a@b.c>",
    "@",
    "a@",
    "\"a b\"@c",
    "a@[1.2.3.4]",
    "localhost",
    "example.com.",
    "1.2.3.4",
    "1.2.3",
    "01.2.3.4",
    "1.2.3.256",
    "::1",
    "::ffff:1.2.3.4",
    "fe80::1%eth0",
    "1.2.3.4/8",
    "1.2.3.4/33",
    "::1/64",
    "::1/129",
    "01.2.3.4/8",
    "1.2.3.4/08",
    "00:00:5e:00:53:01",
    "00-00-5E-00-53-01",
    "0000.5e00.5301",
    "00005e005301",
    "02:00:5e:10:00:00:00:01",
    "123e4567-e89b-12d3-a456-426614174000",
    "123E4567-E89B-12D3-A456-426614174000",
    "123e4567e89b12d3a456426614174000",
    "a3bb189e-8bf9-3888-9912-ace4e6543002",
    "f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "886313e1-3b8a-5372-9b90-0c9aee199e5d",
    "123e4567-e89b-12d3-a456-42661417400",
    "0321751043",
    "0-321-75104-3",
    "0321751044",
    "9780321751041",
    "978-0321751041",
    "9780321751042",
    "4111111111111111",
    "4111-1111-1111-1111",
    "4111111111111112",
    "378282246310005",
    "123-45-6789",
    "123456789",
    "123 45 6789",
    "12-345-6789",
    "#fff",
    "fff",
    "#FFFFFF",
    "#ffff",
    "rgb(1,2,3)",
    "rgb(255, 255, 255)",
    "rgb(256,0,0)",
    "RGB(1,2,3)",
    "rgb(1,2,3,4)",
    "YQ==",
    "YQ",
    "YWI=",
    "Y Q==",
    "YW\nI=",
    "_-==",
    "2020-02-29",
    "2021-02-29",
    "2020-1-1",
    "2020-01-01T00:00:00Z",
    "2020-01-01t00:00:00z",
    "2020-01-01T00:00:00",
    "2020-01-01 00:00:00Z",
    "2020-01-01T00:00:00.123456789Z",
    "2020-01-01T00:00:00+01:00",
    "2020-01-01T24:00:00Z",
    "2020-01-01T00:00:60Z",
    "2020-01-01T00:00Z",
    "1h",
    "1h30m",
    "-1.5s",
    "1",
    "1 h",
    "1 hour",
    "2 days",
    "1d",
    "1w",
    "1us",
    "1µs",
    "1 ms",
    "h",
    "1y",
    "P1D",
    "3 weeks",
    "1.5 days",
];

/// A definition with a field of each format, and for each text an object that has it everywhere.
pub fn scenario() -> Scenario {
    let things = "/apis/{{run}}.example.com/v1/namespaces/{{ns}}/things?dryRun=All";
    let fields = |value: &dyn Fn(&str) -> Value| -> Map<String, Value> {
        FORMATS.iter().map(|format| ((*format).to_owned(), value(format))).collect()
    };
    let spec = fields(&|format| json!({"type": "string", "format": format}));
    let mut schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
    for (name, kind) in
        [("int32", "integer"), ("int64", "integer"), ("float", "number"), ("double", "number"), ("date", "number")]
    {
        schema["properties"]["numbers"]["properties"][format!("{kind}-{name}")] = json!({"type": kind, "format": name});
    }
    schema["properties"]["numbers"]["type"] = json!("object");
    let mut steps = served(&schema);
    let object = |part: &str, value: Value| json!({"apiVersion": "{{run}}.example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, part: value});
    for text in TEXTS.iter().map(|text| (*text).to_owned()).chain([
        "a".repeat(63),
        "a".repeat(64),
        "a.".repeat(126) + "a",
        "a.".repeat(127),
    ]) {
        let body = object("spec", fields(&|_| json!(text)).into());
        steps.push(Step::new(Request::json("POST", things, &body)));
    }
    let names: Vec<String> = schema["properties"]["numbers"]["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect();
    for number in [
        "0",
        "1.0",
        "1.5",
        "2147483647",
        "2147483648",
        "-2147483649",
        "9223372036854775807",
        "9223372036854775808",
        "1e3",
        "1e20",
        "3.5e38",
        "1e400",
        "-0",
    ] {
        let numbers: Vec<String> = names.iter().map(|name| format!("\"{name}\": {number}")).collect();
        let body = object("numbers", json!("NUMBERS"))
            .to_string()
            .replace("\"NUMBERS\"", &format!("{{{}}}", numbers.join(", ")));
        let request = Request::new("POST", things).header("content-type", "application/json").body(body);
        steps.push(Step::new(request));
    }
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let gone = Step::new(Request::new("DELETE", format!("{all}/things.{{{{run}}}}.example.com")));
    steps.push(Step { compared: false, ..gone });
    Scenario { name: "formats".into(), steps, ..Scenario::default() }
}
