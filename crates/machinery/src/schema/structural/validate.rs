//! Validating values against a schema, in the words of Kubernetes' OpenAPI validator.
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::formats;
use super::keyed::Keyed;
use crate::field::{self, Error, Kind, Path};
use crate::schema::{Id, ListKind, MAX_DEPTH, Rules, Schema, Shape};

/// All mistakes of a value. With `old`, parts that can be told to be unchanged are let pass.
pub(super) fn validate(value: &Value, old: Option<&Value>, schema: Schema<'_>) -> field::Errors {
    let old = old.map(|value| Before { value, schema });
    ratcheted(value, old, schema, "", MAX_DEPTH).errors
}

/// The old value that a value is compared with, and the structure that says how.
#[derive(Clone, Copy)]
pub struct Before<'a> {
    value: &'a Value,
    schema: Schema<'a>,
}

impl<'a> Before<'a> {
    /// The whole object as it was.
    pub(super) fn new(value: &'a Value, schema: Schema<'a>) -> Self {
        Before { value, schema }
    }

    /// Whether nothing changed. What the structure does not know counts as changed, as in Kubernetes.
    pub fn same(self, new: &Value) -> bool {
        self.is(new, MAX_DEPTH)
    }

    /// The old value of a field or of a map's entry, if the structure knows it.
    pub fn key(self, name: &str) -> Option<Before<'a>> {
        let schema = match self.schema.shape() {
            // `additionalProperties: true` has no structure.
            Shape::Map(values) => {
                Some(self.schema.at(*values)).filter(|of| !of.node().untyped || of.node().preserve_unknown)?
            }
            _ => self.schema.at(self.schema.field(name)?.schema),
        };
        Some(Before { value: self.value.as_object()?.get(name)?, schema })
    }

    /// The old items, in lists of type map. Of others nothing can be told.
    pub fn items(self) -> Option<BeforeItems<'a>> {
        let Shape::List { items, list: ListKind::Map(keys) } = self.schema.shape() else { return None };
        Some(BeforeItems { known: Keyed::new(self.value.as_array()?, keys), schema: self.schema.at(*items) })
    }

    fn is(self, new: &Value, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        match (self.value, new) {
            (Value::Object(old), Value::Object(map)) => {
                old.len() == map.len()
                    && map.iter().all(|(name, new)| self.key(name).is_some_and(|old| old.is(new, depth)))
            }
            (Value::Array(old), Value::Array(list)) => {
                let Some(items) = self.items() else { return old == list };
                old.len() == list.len() && list.iter().all(|new| items.like(new).is_some_and(|old| old.is(new, depth)))
            }
            (old, new) => old == new,
        }
    }
}

/// The old items of a list that new ones are compared with.
pub struct BeforeItems<'a> {
    known: Keyed<'a>,
    schema: Schema<'a>,
}

impl<'a> BeforeItems<'a> {
    /// The old item with the same keys.
    pub fn like(&self, new: &Value) -> Option<Before<'a>> {
        self.known.like(new).map(|value| Before { value, schema: self.schema })
    }
}

/// A part of the object: if it did not change, its mistakes are let pass.
fn ratcheted(value: &Value, old: Option<Before<'_>>, schema: Schema<'_>, name: &str, depth: usize) -> Outcome {
    let mut outcome = one(value, old, schema, name, depth);
    if !outcome.errors.is_empty() && old.is_some_and(|old| old.is(value, depth)) {
        outcome.errors.clear();
    }
    outcome
}

static NO_RULES: LazyLock<Rules> = LazyLock::new(Rules::default);

/// The mistakes found, and how many checks were made: of alternatives that all fail, the one with the most is shown.
#[derive(Default)]
struct Outcome {
    errors: field::Errors,
    matches: u64,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        other.errors.into_iter().for_each(|error| self.push(error));
        self.matches += other.matches;
    }

    /// The same mistake is told once. Beyond a hundred nobody reads them, so nobody compares them.
    fn push(&mut self, error: Error) {
        if self.errors.len() > 100 || !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn add(&mut self, kind: Kind, name: &str, value: Value, detail: String) {
        let value = value.as_f64().filter(|_| value.is_f64()).map_or(value, shown);
        self.push(Error::new(kind, &place(name), Some(value), detail));
    }

    /// A mistake of the whole, which Kubernetes reports without a field.
    fn composite(&mut self, detail: String) {
        self.push(Error::new(Kind::Invalid, &Path::empty(), Some("".into()), detail));
    }
}

fn place(name: &str) -> Path {
    match name.strip_prefix('.').unwrap_or(name) {
        "" => Path::empty(),
        name => Path::root(name),
    }
}

/// A value, and the same of the old object if it can be told which that is.
fn one(value: &Value, old: Option<Before<'_>>, schema: Schema<'_>, name: &str, depth: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(depth) = depth.checked_sub(1) else {
        outcome.composite("the object is nested too deeply".into());
        return outcome;
    };
    let rules = schema.node().rules.as_deref();
    of_type(value, schema, name, &mut outcome);
    if value.is_null() {
        if let Some(rules) = rules {
            enumeration(value, rules, name, &mut outcome);
        }
    } else {
        // Every check that applies counts, whether it finds something or not.
        outcome.matches += 2;
        if let Some(rules) = rules {
            outcome.matches += 2;
            composed(value, old, schema, rules, name, depth, &mut outcome);
            if let Value::String(text) = value {
                string(text, schema, rules, name, &mut outcome);
            }
        }
        if value.is_number() {
            number(value, schema, rules.unwrap_or(&NO_RULES), name, &mut outcome);
        }
        if let Value::Array(items) = value {
            list(items, old, schema, rules, name, depth, &mut outcome);
        }
        if let Some(rules) = rules {
            enumeration(value, rules, name, &mut outcome);
        }
        if let Value::Object(map) = value {
            object(map, old, schema, rules, name, depth, &mut outcome);
        }
    }
    outcome
}

/// What the type of a schema is called, and the value's.
fn type_names(schema: Schema<'_>) -> &'static str {
    match schema.shape() {
        Shape::Any => "",
        Shape::Object(_) | Shape::Map(_) => "object",
        Shape::List { .. } => "array",
        Shape::String(_) => "string",
        Shape::Integer { .. } => "integer",
        Shape::Number => "number",
        Shape::Boolean => "boolean",
        Shape::IntOrString => "integer,string",
    }
}

fn of_type(value: &Value, schema: Schema<'_>, name: &str, outcome: &mut Outcome) {
    let node = schema.node();
    if node.untyped || matches!(node.shape, Shape::Any) {
        return;
    }
    // What is no i64 is a float in Go, and those are whole numbers only as far as floats can count.
    let countable = |float: f64| float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0;
    let integral = value.is_i64() || value.as_f64().is_some_and(countable);
    let fits = match (&node.shape, value) {
        (_, Value::Null) => node.nullable,
        (Shape::Object(_) | Shape::Map(_), Value::Object(_)) => true,
        (Shape::List { .. }, Value::Array(_)) => true,
        (Shape::String(_), Value::String(_)) => true,
        (Shape::Integer { .. }, Value::Number(_)) => integral,
        (Shape::Number, Value::Number(_)) => true,
        (Shape::Boolean, Value::Bool(_)) => true,
        (Shape::IntOrString, Value::String(_)) => true,
        (Shape::IntOrString, Value::Number(_)) => integral,
        _ => false,
    };
    if fits {
        outcome.matches += 1;
        return;
    }
    let (found, found_format) = type_of(value);
    // With a format, values that are neither text nor list are compared by it.
    let format = node.rules.as_deref().and_then(|rules| formats::known(schema, rules));
    let (wanted, found) = match format {
        Some(format) if !matches!(value, Value::String(_) | Value::Array(_) | Value::Null) => (format, found_format),
        Some(_) if matches!(value, Value::Array(_)) && matches!(node.shape, Shape::String(_)) => return,
        _ => (type_names(schema), found),
    };
    let detail = format!("{name} in body must be of type {wanted}: {}", Value::from(found));
    outcome.add(Kind::TypeInvalid, name, found.into(), detail);
}

/// What a value is, and its format if it is a number.
pub(super) fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn composed(
    value: &Value,
    old: Option<Before<'_>>,
    schema: Schema<'_>,
    rules: &Rules,
    name: &str,
    depth: usize,
    outcome: &mut Outcome,
) {
    let check = |id: &Id| one(value, old, schema.at(*id), name, depth);
    let quoted = Value::from(name);
    if !rules.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut valid = None;
        for result in rules.any_of.iter().map(check) {
            if result.errors.is_empty() {
                valid = Some(result);
                break;
            }
            if best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if valid.is_none() {
            outcome.composite(format!("{quoted} must validate at least one schema (anyOf)"));
        }
        if let Some(result) = valid.or(best) {
            outcome.merge(result);
        }
    }
    if !rules.one_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut first = None;
        let mut valid = 0;
        for result in rules.one_of.iter().map(check) {
            if result.errors.is_empty() {
                valid += 1;
                first.get_or_insert(result);
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        let text = format!("{quoted} must validate one and only one schema (oneOf).");
        match valid {
            1 => first.into_iter().for_each(|result| outcome.merge(result)),
            0 => {
                outcome.composite(format!("{text} Found none valid"));
                best.into_iter().for_each(|result| outcome.merge(result));
            }
            _ => outcome.composite(format!("{text} Found {valid} valid alternatives")),
        }
    }
    if !rules.all_of.is_empty() {
        let mut valid = 0;
        for result in rules.all_of.iter().map(check) {
            valid += usize::from(result.errors.is_empty());
            outcome.merge(result);
        }
        if valid != rules.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            outcome.composite(format!("{quoted} must validate all the schemas (allOf){none}"));
        }
    }
    if rules.not.is_some_and(|id| check(&id).errors.is_empty()) {
        outcome.composite(format!("{quoted} must not validate the schema (not)"));
    }
}

fn string(text: &str, schema: Schema<'_>, rules: &Rules, name: &str, outcome: &mut Outcome) {
    let length = if rules.max_length.is_some() || rules.min_length.is_some() { text.chars().count() as u64 } else { 0 };
    if let Some(max) = rules.max_length.filter(|max| length > *max) {
        outcome.push(Error::too_long(&place(name), usize::try_from(max).unwrap_or(usize::MAX)));
    } else if let Some(min) = rules.min_length.filter(|min| length < *min) {
        let detail = format!("{name} in body should be at least {min} chars long");
        outcome.add(Kind::Invalid, name, text.into(), detail);
    } else if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| pattern.is_match(text) != Some(true)) {
        let detail = format!("{name} in body should match '{}'", pattern.as_str());
        outcome.add(Kind::Invalid, name, text.into(), detail);
    }
    if let Some(format) = formats::known(schema, rules).filter(|format| !formats::fits(format, text)) {
        let detail = format!("{name} in body must be of type {format}: {}", Value::from(text));
        outcome.add(Kind::TypeInvalid, name, text.into(), detail);
    }
}

fn number(value: &Value, schema: Schema<'_>, rules: &Rules, name: &str, outcome: &mut Outcome) {
    let Some(float) = value.as_f64() else { return };
    // Whether a number is one of the type. Kubernetes also asks this of the bounds.
    let mut in_range = |what: &str, number: f64| {
        let format = formats::known(schema, rules);
        let (kind, fits) = match (schema.shape(), schema.node().untyped, format) {
            (Shape::Integer { .. }, false, Some("int32")) => {
                ("integer", number.fract() == 0.0 && number >= f64::from(i32::MIN) && number <= f64::from(i32::MAX))
            }
            (Shape::Integer { .. }, false, _) => {
                let small = number.abs() < 9_223_372_036_854_775_808.0 || value.is_i64();
                ("integer", number.fract() == 0.0 && small)
            }
            (Shape::Number, false, Some("float")) => ("number", (number as f32).is_finite()),
            _ => ("number", true),
        };
        if !fits {
            let format = format.map_or("(default format)".to_owned(), |format| format!("with format {format}"));
            outcome.composite(format!("{what} value must be of type {kind} {format} in {name}"));
        }
        fits
    };
    in_range("Checked", float);
    let multiple = rules.multiple_of.map(|factor| (factor, in_range("MultipleOf", factor)));
    let minimum = rules.minimum.map(|bound| (bound, in_range("Minimum boundary", bound)));
    let maximum = rules.maximum.map(|bound| (bound, in_range("Maximum boundary", bound)));
    // Whole numbers are compared as such, with the bound's fraction cut off.
    let cut = |(bound, fits): (f64, bool)| if fits && !value.is_f64() { bound.trunc() + 0.0 } else { bound };
    if let Some(factor) = multiple.map(cut) {
        let multiple = match value.as_i64() {
            _ if factor <= 0.0 => {
                let detail = format!("factor MultipleOf declared for {name} must be positive: {factor}");
                outcome.add(Kind::Invalid, name, shown(factor), detail);
                true
            }
            Some(whole) if factor.fract() == 0.0 => whole % (factor as i64) == 0,
            _ if factor < 1.0 => is_whole(1.0 / factor * float),
            _ => is_whole(float / factor),
        };
        if !multiple {
            let detail = format!("{name} in body should be a multiple of {factor}");
            outcome.add(Kind::Invalid, name, value.clone(), detail);
        }
    }
    if let Some(min) = minimum.map(cut) {
        let (fails, words) = match rules.exclusive_minimum {
            true => (float <= min, "greater than"),
            false => (float < min, "greater than or equal to"),
        };
        if fails {
            outcome.add(Kind::Invalid, name, value.clone(), format!("{name} in body should be {words} {min}"));
        }
    }
    if let Some(max) = maximum.map(cut) {
        let (fails, words) = match rules.exclusive_maximum {
            true => (float >= max, "less than"),
            false => (float > max, "less than or equal to"),
        };
        if fails {
            outcome.add(Kind::Invalid, name, value.clone(), format!("{name} in body should be {words} {max}"));
        }
    }
}

/// Whether a number has no fraction, save for what rounding adds, as Kubernetes tells it: none that is too large to know, and what
/// falls short of a whole number is not one.
fn is_whole(float: f64) -> bool {
    const KNOWN: f64 = 9_007_199_254_740_991.0;
    let whole = float.trunc();
    let close = || whole > 0.0 && (float - whole) / (float + whole) < 1e-9;
    float.abs() <= KNOWN && (float == whole || close())
}

/// A number as JSON, whole ones as such.
fn shown(float: f64) -> Value {
    if float.fract() == 0.0 && float.abs() < 9e15 { Value::from(float as i64) } else { Value::from(float) }
}

fn enumeration(value: &Value, rules: &Rules, name: &str, outcome: &mut Outcome) {
    let Some(allowed) = &rules.enumeration else { return };
    let same = |allowed: &Value| match (allowed, value) {
        (_, Value::Null) => false,
        // Kubernetes turns the value into the allowed one's type: where that is whole, 2.5 passes as 2.
        (Value::Number(a), Value::Number(b)) if a.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64().map(f64::trunc),
        (a, b) => a == b,
    };
    if !allowed.iter().any(same) {
        let quoted = |value: &Value| match value {
            Value::String(_) => value.to_string(),
            other => Value::from(other.to_string()).to_string(),
        };
        let words: Vec<String> = allowed.iter().map(quoted).collect();
        outcome.add(Kind::NotSupported, name, value.clone(), format!("supported values: {}", words.join(", ")));
    }
}

fn list(
    items: &[Value],
    old: Option<Before<'_>>,
    schema: Schema<'_>,
    rules: Option<&Rules>,
    name: &str,
    depth: usize,
    outcome: &mut Outcome,
) {
    if let Some(of) = schema.items() {
        let known = old.and_then(Before::items);
        for (index, item) in items.iter().enumerate() {
            let old = known.as_ref().and_then(|known| known.like(item));
            outcome.merge(ratcheted(item, old, of, &format!("{name}[{index}]"), depth));
        }
    }
    size_of_list(items, rules, name, outcome);
}

fn size_of_list(items: &[Value], rules: Option<&Rules>, name: &str, outcome: &mut Outcome) {
    let Some(rules) = rules else { return };
    let size = items.len() as u64;
    if let Some(min) = rules.min_items.filter(|min| size < *min) {
        outcome.add(Kind::Invalid, name, size.into(), format!("{name} in body should have at least {min} items"));
    }
    if let Some(max) = rules.max_items.filter(|max| size > *max) {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        outcome.push(Error::too_many(&place(name), Some(items.len()), max));
    }
}

fn object(
    map: &Map<String, Value>,
    old: Option<Before<'_>>,
    schema: Schema<'_>,
    rules: Option<&Rules>,
    name: &str,
    depth: usize,
    outcome: &mut Outcome,
) {
    let size = map.len() as u64;
    if let Some(min) = rules.and_then(|rules| rules.min_properties).filter(|min| size < *min) {
        outcome.add(Kind::Invalid, name, size.into(), format!("{name} in body should have at least {min} properties"));
    }
    if let Some(max) = rules.and_then(|rules| rules.max_properties).filter(|max| size > *max) {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        outcome.push(Error::too_many(&place(name), Some(map.len()), max));
    }
    match schema.shape() {
        Shape::Map(values) => {
            let of = schema.at(*values);
            for (key, value) in map {
                let old = old.and_then(|old| old.key(key));
                outcome.merge(ratcheted(value, old, of, &format!("{name}.{key}"), depth));
            }
        }
        Shape::Object(fields) => {
            for field in fields {
                if let Some(value) = map.get(&*field.name) {
                    let path = if name.is_empty() { field.name.to_string() } else { format!("{name}.{}", field.name) };
                    // Both versions were brought to the same apiVersion and kind: nothing can be told of those.
                    let told = !name.is_empty() || !matches!(&*field.name, "apiVersion" | "kind");
                    let old = old.filter(|_| told).and_then(|old| old.key(&field.name));
                    outcome.merge(ratcheted(value, old, schema.at(field.schema), &path, depth));
                }
            }
        }
        _ => {}
    }
    for key in rules.into_iter().flat_map(|rules| &rules.required) {
        if !map.contains_key(&**key) {
            outcome.push(Error::required(&place(&format!("{name}.{key}")), ""));
        }
    }
}
