//! The table of types: Go's reflection gives fields, order and protobuf numbers; OpenAPI gives list types, defaults, enums.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

/// The head of types.txt.
const HEAD: &str = "\
# Written by `cargo xtask generate`. See crates/kinds/src/table.rs for how it is read.
# p short long: a package. o type: an object, its fields below it as ` name type proto flags attributes`.
# s type values: a string with a name of its own. m, l type of: a map, a list with a name of its own (w: protobuf wraps it).
# k group/version kind type: a kind; core is the group without a name.
# flags: e omitempty, z omitzero, p pointer, r required, a atomic, g granular though its type is atomic, - none. attributes: k=list keys, set, m=merge key (or m),
# replace (not merged), t retain keys, i=protobuf numbers:names of the inlined structs around it, d=default.
";

/// Group versions that are served nowhere but spoken: webhooks, discovery, tables.
const ALSO: &[&str] = &["admission.k8s.io/v1", "apidiscovery.k8s.io/v2", "meta.k8s.io/v1"];

/// Kinds that every group version has; they are listed once.
const EVERYWHERE: &[&str] =
    &["CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions", "WatchEvent"];

/// What the types with their own JSON form are called in the table.
const CUSTOM: &[(&str, &str)] = &[
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "json"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "schema-or-list"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "schema-or-bool"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "schema-or-strings"),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "fields"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "microtime"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Duration", "duration"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "raw"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "int-or-string"),
];

/// The text of types.txt.
pub fn types(reflected: &Value, openapi: &Map<String, Value>, versions: &BTreeSet<String>) -> Result<String> {
    let kinds = reflected["kinds"].as_object().context("tools/generate printed no kinds")?;
    let types = reflected["types"].as_object().context("tools/generate printed no types")?;
    let mut table = Table { types, openapi, packages: BTreeMap::new(), lines: BTreeMap::new() };
    let mut kind_lines = BTreeSet::new();
    for (key, name) in kinds {
        let (group_version, kind) = key.rsplit_once('/').context("a kind without a version")?;
        let wanted = versions.contains(group_version) || ALSO.contains(&group_version);
        let everywhere = EVERYWHERE.contains(&kind) && group_version != "/v1";
        if !wanted || everywhere {
            continue;
        }
        let name = name.as_str().context("a kind without a type")?;
        table.add(name)?;
        let group_version = if group_version == "/v1" { "core/v1" } else { group_version };
        kind_lines.insert(format!("k {group_version} {kind} {}", table.short(name)?));
    }
    let mut text = HEAD.to_owned();
    for (short, long) in &table.packages {
        writeln!(text, "p {short} {long}")?;
    }
    for line in kind_lines {
        writeln!(text, "{line}")?;
    }
    for lines in table.lines.values() {
        text.push_str(lines);
    }
    Ok(text)
}

struct Table<'a> {
    types: &'a Map<String, Value>,
    openapi: &'a Map<String, Value>,
    packages: BTreeMap<String, String>,
    lines: BTreeMap<String, String>,
}

impl Table<'_> {
    /// `core.v1.PodSpec` for `io.k8s.api.core.v1.PodSpec`.
    fn short(&mut self, name: &str) -> Result<String> {
        let (package, base) = name.rsplit_once('.').with_context(|| format!("{name} has no package"))?;
        let mut parts = package.rsplitn(3, '.');
        let (last, before) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let short = format!("{before}.{last}");
        let known = self.packages.entry(short.clone()).or_insert_with(|| package.to_owned());
        ensure!(known == package, "{known} and {package} have the same short name");
        Ok(format!("{short}.{base}"))
    }

    /// How a type is written where it is used; adds what it names to the table.
    fn add(&mut self, name: &str) -> Result<String> {
        if let Some((_, own)) = CUSTOM.iter().find(|(custom, _)| *custom == name) {
            if own.starts_with("schema-or") {
                self.add("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")?;
            }
            return Ok((*own).to_owned());
        }
        let types = self.types;
        let of = types.get(name).with_context(|| format!("no type {name}"))?;
        let go = of["go"].as_str().unwrap_or("");
        let kind = of["kind"].as_str().unwrap_or("");
        let elem = of["elem"].as_str().unwrap_or("");
        let unnamed = go == name || name.starts_with("[]") || name.starts_with("map[");
        match kind {
            "slice" if elem == "uint8" => Ok("bytes".into()),
            "slice" | "map" if unnamed => Ok(format!("{}{}", if kind == "map" { "{}" } else { "[]" }, self.add(elem)?)),
            "interface" => Ok("any".into()),
            "string" | "bool" | "int32" | "int64" | "float64" if unnamed => Ok(kind.into()),
            "slice" | "map" | "string" | "struct" => {
                let short = self.short(name)?;
                if self.lines.contains_key(&short) {
                    return Ok(short);
                }
                self.lines.insert(short.clone(), String::new());
                let text = match kind {
                    "slice" if of["message"] == true => format!("l {short} {} w\n", self.add(elem)?),
                    "slice" => format!("l {short} {}\n", self.add(elem)?),
                    "map" => format!("m {short} {}\n", self.add(elem)?),
                    "string" => format!("s {short}\n"),
                    _ => self.object(name, &short, &of["fields"])?,
                };
                // A string's values are known only where it is used: they were added meanwhile or come later.
                self.lines.entry(short.clone()).and_modify(|line| line.insert_str(0, &text));
                Ok(short)
            }
            _ => bail!("{name}: cannot write a {kind}"),
        }
    }

    fn object(&mut self, name: &str, short: &str, fields: &Value) -> Result<String> {
        let openapi = self.openapi.get(name);
        let of_type = |key: &str| openapi.and_then(|schema| schema.get(key));
        let atomic = of_type("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        let mut text = format!("o {short}{}\n", if atomic { " a" } else { "" });
        let required: BTreeSet<&str> =
            of_type("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        for field in fields.as_array().into_iter().flatten() {
            let json = field["name"].as_str().unwrap_or("");
            let property = of_type("properties").and_then(|all| all.get(json)).unwrap_or(&Value::Null);
            self.field(&mut text, field, property, required.contains(json))
                .with_context(|| format!("{name}.{json}"))?;
        }
        Ok(text)
    }

    fn field(&mut self, text: &mut String, field: &Value, property: &Value, required: bool) -> Result<()> {
        let string = |key: &str| field[key].as_str().unwrap_or("");
        let expression = self.add(string("type"))?;
        let proto = string("proto").split_once(',').map_or("0", |(_, number)| number);
        let mut flags = String::new();
        for (flag, key) in [('e', "omitEmpty"), ('z', "omitZero"), ('p', "pointer")] {
            if field[key].as_bool() == Some(true) {
                flags.push(flag);
            }
        }
        if required {
            flags.push('r');
        }
        if property["x-kubernetes-map-type"] == "atomic" {
            ensure!(expression.starts_with("{}"), "an atomic field that is no map");
            flags.push('a');
        }
        let refers = property.get("$ref").is_some() || property.get("allOf").is_some();
        if property["x-kubernetes-map-type"] == "granular" && refers {
            flags.push('g');
        }
        if flags.is_empty() {
            flags.push('-');
        }
        write!(text, " {} {expression} {proto} {flags}", string("name"))?;
        match property["x-kubernetes-list-type"].as_str() {
            Some("map") => {
                let keys = property["x-kubernetes-list-map-keys"].as_array().context("a list map without keys")?;
                let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
                write!(text, " k={}", keys.join(","))?;
            }
            Some("set") => text.push_str(" set"),
            Some("atomic") | None => {}
            Some(other) => bail!("unknown list type {other}"),
        }
        for strategy in string("patchStrategy").split(',') {
            match strategy {
                "merge" if string("patchMergeKey").is_empty() => text.push_str(" m"),
                "merge" => write!(text, " m={}", string("patchMergeKey"))?,
                "retainKeys" => text.push_str(" t"),
                "replace" => text.push_str(" replace"),
                "" => {}
                other => bail!("unknown patch strategy {other}"),
            }
        }
        if !string("inline").is_empty() {
            write!(text, " i={}:{}", string("inline"), string("embedded"))?;
        }
        let default = &property["default"];
        let zero = *default == "" || *default == 0 || *default == false;
        // A zero that is left out of the object still stands for the key of a list's item.
        let silent = zero && (required || field["omitEmpty"] != true || field["pointer"] == true);
        if !default.is_null() && !silent && default.as_object().is_none_or(|default| !default.is_empty()) {
            let default = default.to_string();
            ensure!(!default.contains(' '), "a default with a space");
            write!(text, " d={default}")?;
        }
        text.push('\n');
        self.enumeration(&expression, property)
    }

    /// Notes the allowed values of a string with a name of its own.
    fn enumeration(&mut self, expression: &str, property: &Value) -> Result<()> {
        let values = property["enum"].as_array().or_else(|| property["items"]["enum"].as_array());
        let Some(values) = values else { return Ok(()) };
        let name = expression.trim_start_matches("[]").trim_start_matches("{}");
        let Some(line) = self.lines.get_mut(name).filter(|line| line.starts_with("s ")) else { return Ok(()) };
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        let with_values = format!("s {name} {}\n", values.join(","));
        ensure!(*line == format!("s {name}\n") || *line == with_values, "{name} has two sets of values");
        *line = with_values;
        Ok(())
    }
}
