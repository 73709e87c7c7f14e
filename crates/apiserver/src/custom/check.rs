//! What a CustomResourceDefinition must be like, checked before it is stored.

mod conversion;

use std::collections::{BTreeSet, HashMap};

pub use conversion::has_authorities;
use machinery::field::{Error, Errors, Path};
use machinery::names;
use machinery::schema::{Structural, StructuralOptions, field_path};
use serde_json::{Map, Value};

use super::rules::Judge;

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What is wrong with a new definition, its name included.
pub fn create(crd: &Value) -> Errors {
    let mut errors = Vec::new();
    let spec = &crd["spec"];
    let wanted = format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group"));
    let name = text(&crd["metadata"], "name");
    if name != wanted && !name.is_empty() {
        errors.push(Error::invalid(
            &Path::root("metadata").child("name"),
            name,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    errors.extend(check_spec(crd, &Value::Null));
    errors.extend(stored_versions(crd));
    errors.extend(approval(crd));
    errors
}

/// Whether a definition says that it is served.
pub fn is_established(crd: &Value) -> bool {
    let established = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
    list(&crd["status"], "conditions").iter().any(established)
}

/// What is wrong with a changed definition.
pub fn update(crd: &Value, old: &Value) -> Errors {
    let (spec, before) = (&crd["spec"], &old["spec"]);
    let mut errors = check_spec(crd, old);
    let path = Path::root("spec");
    let mut immutable = |path: Path, new: &Value, old: &Value| {
        if new != old {
            errors.push(Error::invalid(&path, new.clone(), "field is immutable"));
        }
    };
    if is_established(old) {
        immutable(path.child("scope"), &spec["scope"], &before["scope"]);
        immutable(path.child("names").child("kind"), &spec["names"]["kind"], &before["names"]["kind"]);
    }
    immutable(path.child("group"), &spec["group"], &before["group"]);
    immutable(path.child("names").child("plural"), &spec["names"]["plural"], &before["names"]["plural"]);
    // Who says as little as before is not asked again.
    let wrong = approval(crd);
    if wrong.as_ref().map(|error| error.kind) != approval(old).map(|error| error.kind) {
        errors.extend(wrong);
    }
    // One that is on its way out may go, whatever it says of itself.
    if spec != before || crd["metadata"].get("deletionTimestamp").is_none() {
        errors.extend(stored_versions(crd));
    }
    errors
}

/// What stood in the old definition, if there is one, was accepted when it was written, be it by an earlier version of this server that
/// asked for less: it is not looked at again. Names and conversion are looked at as a whole if anything about them is new, versions part
/// by part.
fn check_spec(crd: &Value, old: &Value) -> Errors {
    let (spec, before) = (&crd["spec"], &old["spec"]);
    let changed = |fields: &[&str]| before.is_null() || fields.iter().any(|field| spec[*field] != before[*field]);
    let path = Path::root("spec");
    let mut errors = Vec::new();
    if changed(&["group"]) {
        errors.extend(group(text(spec, "group"), &path.child("group")));
    }
    if changed(&["scope"]) {
        match text(spec, "scope") {
            "" => errors.push(Error::required(&path.child("scope"), "")),
            "Namespaced" | "Cluster" => {}
            other => errors.push(Error::not_supported(&path.child("scope"), other, &["Cluster", "Namespaced"])),
        }
    }
    let preserves = spec["preserveUnknownFields"] == true;
    if preserves && changed(&["preserveUnknownFields"]) {
        errors.push(Error::invalid(
            &path.child("preserveUnknownFields"),
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    if preserves && changed(&["preserveUnknownFields", "versions"]) {
        let schemas = list(spec, "versions").iter().map(|version| &version["schema"]["openAPIV3Schema"]);
        if schemas.into_iter().any(|schema| any_schema(schema, 0, &|fields| fields.contains_key("default"))) {
            let detail = "must be false in order to use defaults in the schema";
            errors.push(Error::invalid(&path.child("preserveUnknownFields"), true, detail));
        }
    }
    if changed(&["versions"]) {
        errors.extend(versions(spec, list(before, "versions"), &path));
    }
    if changed(&["names"]) {
        errors.extend(check_names(&spec["names"], &path.child("names")));
    }
    if changed(&["conversion", "preserveUnknownFields"]) {
        errors.extend(conversion::check(crd, old, &path.child("conversion")));
    }
    errors
}

fn group(group: &str, path: &Path) -> Option<Error> {
    let wrong = names::dns1123_subdomain(group);
    if group.is_empty() {
        Some(Error::required(path, ""))
    } else if !wrong.is_empty() {
        Some(Error::invalid(path, group, wrong.join(",")))
    } else {
        (!group.contains('.')).then(|| Error::invalid(path, group, "should be a domain with at least one dot"))
    }
}

/// What all versions have alike stands, for errors, at the top of the spec.
#[derive(PartialEq)]
struct Alike {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Alike {
    fn of(versions: &[Value]) -> Self {
        let same = |name: &str| versions.windows(2).all(|pair| pair[0].get(name) == pair[1].get(name));
        Alike {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }
}

fn versions(spec: &Value, before: &[Value], path: &Path) -> Errors {
    let mut errors = Vec::new();
    let all = list(spec, "versions");
    let (alike, was_alike) = (Alike::of(all), Alike::of(before));
    let by_name: HashMap<&str, &Value> = before.iter().map(|old| (text(old, "name"), old)).collect();
    let old_of = |version: &Value| by_name.get(text(version, "name")).copied();
    let stood = |version: &Value, fields: &[&str]| {
        old_of(version).is_some_and(|old| fields.iter().all(|field| version.get(*field) == old.get(*field)))
    };
    let has_status = |version: &Value| version["subresources"].get("status").is_some_and(|status| !status.is_null());
    let mut seen = BTreeSet::new();
    let mut unique = true;
    let at = path.child("versions");
    for (i, version) in all.iter().enumerate() {
        let own = at.index(i);
        // What all versions share is looked at once, if it is new to any of them.
        let is_due = |shared: bool, stood: &dyn Fn(&Value) -> bool| match shared {
            true => i == 0 && !all.iter().all(stood),
            false => !stood(version),
        };
        let name = text(version, "name");
        unique &= seen.insert(name);
        let wrong = names::dns1035_label(name);
        if !wrong.is_empty() && old_of(version).is_none() {
            errors.push(Error::invalid(&own.child("name"), name, wrong.join(",")));
            if i == 0 && !name.is_empty() {
                // The first version once had a field of its own.
                errors.push(Error::invalid(&path.child("version"), name, wrong.join(",")));
            }
        }
        if !has_schema(version) && !stood(version, &["schema"]) {
            errors.push(Error::required(&own.child("schema").child("openAPIV3Schema"), ""));
        }
        if !stood(version, &["deprecated", "deprecationWarning"]) {
            errors.extend(deprecation(version, &own));
        }
        let schema_stood = |version: &Value| {
            stood(version, &["schema"]) && old_of(version).is_some_and(|old| has_status(old) == has_status(version))
        };
        if is_due(alike.schema, &schema_stood) {
            let base = if alike.schema { path.child("validation") } else { own.child("schema") };
            let has_status = if alike.schema { all.iter().any(has_status) } else { has_status(version) };
            let before = if was_alike.schema { before.first() } else { old_of(version) };
            let is_known = before.is_some_and(|old| old.get("schema") == version.get("schema"));
            let judge = if is_known { Judge::lenient() } else { Judge::new() };
            errors.extend(schema(version, &base.child("openAPIV3Schema"), has_status, &judge));
        }
        if is_due(alike.subresources, &|version| stood(version, &["subresources"])) {
            let base = if alike.subresources { path } else { &own };
            errors.extend(subresources(&version["subresources"], &base.child("subresources")));
        }
        if is_due(alike.columns, &|version| stood(version, &["additionalPrinterColumns"])) {
            let base = if alike.columns { path } else { &own };
            errors.extend(columns(list(version, "additionalPrinterColumns"), &base.child("additionalPrinterColumns")));
        }
        let selectable_stood = |version: &Value| alike == was_alike && stood(version, &["schema", "selectableFields"]);
        if is_due(alike.selectable, &selectable_stood) {
            let base = if alike.selectable { path } else { &own };
            let counted = if alike.selectable { before.first() } else { old_of(version) };
            let may_be_many = alike.selectable == was_alike.selectable
                && counted.is_some_and(|old| old.get("selectableFields") == version.get("selectableFields"));
            errors.extend(selectable(version, &base.child("selectableFields"), &alike, may_be_many));
        }
    }
    if !unique {
        errors.push(Error::invalid(&at, spec["versions"].clone(), "must contain unique version names"));
    }
    if all.iter().filter(|version| version["storage"] == true).count() != 1 {
        let shown = if all.is_empty() { Value::Array(Vec::new()) } else { spec["versions"].clone() };
        errors.push(Error::invalid(&at, shown, "must have exactly one version marked as storage version"));
    }
    errors
}

fn has_schema(version: &Value) -> bool {
    version["schema"].get("openAPIV3Schema").is_some_and(|schema| !schema.is_null())
}

fn deprecation(version: &Value, path: &Path) -> Errors {
    let Some(warning) = version["deprecationWarning"].as_str() else { return Vec::new() };
    let at = path.child("deprecationWarning");
    let mut errors = Vec::new();
    let mut bad = |detail: &str| errors.push(Error::invalid(&at, warning, detail));
    if version["deprecated"] != true {
        bad("can only be set for deprecated versions");
        return errors;
    }
    if warning.len() > 256 {
        bad("must be <= 256 characters long");
    }
    if warning.is_empty() {
        bad("must not be an empty string");
    }
    if warning.chars().any(char::is_control) {
        bad("must only contain printable UTF-8 characters");
    }
    errors
}

fn schema(version: &Value, path: &Path, status: bool, judge: &Judge) -> Errors {
    let Some(schema) = version["schema"].get("openAPIV3Schema").filter(|schema| !schema.is_null()) else {
        return Vec::new();
    };
    let options =
        StructuralOptions { metadata: Some(crate::resource::object_meta()), status, expressions: Some(judge) };
    match Structural::from_crd_schema(schema, path, options) {
        Ok(_) if has_dialect(schema) => {
            vec![Error::invalid(path, "", "OpenAPIV3Schema 'schema' is not supported")]
        }
        Ok(_) => Vec::new(),
        Err(errors) => errors,
    }
}

/// Whether a schema, or one within it, says which dialect it is written in.
fn has_dialect(schema: &Value) -> bool {
    any_schema(schema, 0, &|fields| fields.get("$schema").is_some_and(|dialect| dialect != ""))
}

/// Whether something can be said of a schema or of one within it.
fn any_schema(schema: &Value, depth: usize, can: &dyn Fn(&Map<String, Value>) -> bool) -> bool {
    let Some(fields) = schema.as_object().filter(|_| depth < 100) else { return false };
    let inner = |name: &str| fields.get(name).into_iter();
    let many = inner("properties").filter_map(Value::as_object).flatten().map(|(_, inner)| inner);
    let logical = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(inner).filter_map(Value::as_array).flatten();
    let one = ["items", "additionalProperties", "not"].into_iter().flat_map(inner);
    can(fields) || many.chain(logical).chain(one).any(|inner| any_schema(inner, depth + 1, can))
}

fn subresources(subresources: &Value, path: &Path) -> Errors {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let at = path.child("scale");
    let mut check = |name: &str, roots: &[&str], required: bool| {
        let value = text(scale, name);
        let at = at.child(name);
        if value.is_empty() {
            if required {
                errors.push(Error::required(&at, ""));
            }
            return;
        }
        if !value.starts_with('.') {
            errors.push(Error::invalid(&at, value, "must be a simple json path starting with ."));
        } else if !roots.iter().any(|root| value.strip_prefix(root).is_some_and(|rest| rest.starts_with('.'))) {
            let either = if roots.len() > 1 { "either " } else { "" };
            let detail = format!("should be a json path under {either}{}", roots.join(" or "));
            errors.push(Error::invalid(&at, value, detail));
        }
    };
    check("specReplicasPath", &[".spec"], true);
    check("statusReplicasPath", &[".status"], true);
    check("labelSelectorPath", &[".spec", ".status"], false);
    errors
}

fn columns(columns: &[Value], path: &Path) -> Errors {
    let mut errors = Vec::new();
    for (i, column) in columns.iter().enumerate() {
        let at = path.index(i);
        if text(column, "name").is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        }
        match text(column, "type") {
            "" => errors.push(Error::required(&at.child("type"), "must be one of boolean,date,integer,number,string")),
            "boolean" | "date" | "integer" | "number" | "string" => {}
            other => {
                errors.push(Error::invalid(
                    &at.child("type"),
                    other,
                    "must be one of boolean,date,integer,number,string",
                ));
            }
        }
        match text(column, "format") {
            "" | "int32" | "int64" | "float" | "double" | "byte" | "date" | "date-time" | "password" => {}
            other => errors.push(Error::invalid(
                &at.child("format"),
                other,
                "must be one of byte,date,date-time,double,float,int32,int64,password",
            )),
        }
        let json_path = text(column, "jsonPath");
        if json_path.is_empty() {
            errors.push(Error::required(&at.child("JSONPath"), ""));
        } else if !json_path.starts_with('.') {
            // What follows may be anything: a column that cannot be read ends the table.
            let detail = "must be a simple json path starting with .";
            errors.push(Error::invalid(&at.child("JSONPath"), json_path, detail));
        }
    }
    errors
}

fn selectable(version: &Value, path: &Path, alike: &Alike, may_be_many: bool) -> Errors {
    if list(version, "selectableFields").is_empty() {
        return Vec::new();
    }
    // The schema that counts stands beside them: at the top of the spec, or in the version.
    if alike.selectable && (!alike.schema || version["schema"].is_null()) {
        return vec![Error::invalid(path, "", "may only be set when validations.schema is included")];
    }
    if !alike.selectable && (alike.schema || !has_schema(version)) {
        let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
        return vec![Error::invalid(path, "", detail)];
    }
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    let schema = &version["schema"]["openAPIV3Schema"];
    for (i, field) in list(version, "selectableFields").iter().enumerate() {
        let at = path.index(i).child("jsonPath");
        let json_path = text(field, "jsonPath");
        if json_path.is_empty() {
            errors.push(Error::required(&at, ""));
            continue;
        }
        let (found, schema) = match field_path(schema, json_path, false) {
            Ok(found) => found,
            Err(why) => {
                errors.push(Error::invalid(&at, json_path, format!("is an invalid path: {why}")));
                continue;
            }
        };
        if found.as_str().split(['.', '[']).next() == Some("metadata") {
            errors.push(Error::invalid(&at, json_path, "must not point to fields in metadata"));
        }
        if !matches!(schema.map(|schema| text(schema, "type")), Some("string" | "boolean" | "integer")) {
            errors.push(Error::invalid(
                &at,
                json_path,
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            ));
        }
        if !seen.insert(found) {
            errors.push(Error::duplicate(&at, json_path));
        }
    }
    if seen.len() > 8 && !may_be_many {
        errors.push(Error::too_many(path, Some(seen.len()), 8));
    }
    errors
}

fn check_names(own: &Value, path: &Path) -> Errors {
    let mut errors = Vec::new();
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(own, name).is_empty() {
            errors.push(Error::required(&path.child(name), ""));
        }
    }
    let label = |at: Path, value: &str, errors: &mut Errors| {
        let wrong = names::dns1035_label(value);
        if !wrong.is_empty() && !value.is_empty() {
            errors.push(Error::invalid(&at, value, wrong.join(",")));
        }
    };
    label(path.child("plural"), text(own, "plural"), &mut errors);
    label(path.child("singular"), text(own, "singular"), &mut errors);
    for name in ["kind", "listKind"] {
        let value = text(own, name);
        let wrong = names::dns1035_label(&value.to_lowercase());
        if !wrong.is_empty() && !value.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.push(Error::invalid(&path.child(name), value, detail));
        }
    }
    for name in ["shortNames", "categories"] {
        for (i, value) in list(own, name).iter().enumerate() {
            label(path.child(name).index(i), value.as_str().unwrap_or_default(), &mut errors);
        }
    }
    if !text(own, "kind").is_empty() && text(own, "kind") == text(own, "listKind") {
        errors.push(Error::invalid(
            &path.child("listKind"),
            text(own, "listKind"),
            "kind and listKind may not be the same",
        ));
    }
    errors
}

fn stored_versions(crd: &Value) -> Errors {
    let path = Path::root("status").child("storedVersions");
    let stored = list(&crd["status"], "storedVersions");
    let versions = list(&crd["spec"], "versions");
    if stored.is_empty() {
        return vec![Error::invalid(&path, Value::Null, "must have at least one stored version")];
    }
    let mut errors = Vec::new();
    for (i, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let name = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a \
                 storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(Error::invalid(&path.index(i), name, detail));
        }
    }
    errors
}

/// Groups of Kubernetes itself want to know who approved an addition to them.
fn approval(crd: &Value) -> Option<Error> {
    let group = text(&crd["spec"], "group");
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|own| group == *own || group.ends_with(&format!(".{own}")));
    if !protected {
        return None;
    }
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    let path = Path::root("metadata").child("annotations").key(ANNOTATION);
    match crd["metadata"]["annotations"].get(ANNOTATION).and_then(Value::as_str) {
        Some(value) if value.starts_with("https://") || value.starts_with("unapproved") => None,
        Some(value) => Some(Error::invalid(
            &path,
            value,
            "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason \
             starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111",
        )),
        None => Some(Error::required(
            &path,
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111",
        )),
    }
}

#[cfg(test)]
mod tests;
