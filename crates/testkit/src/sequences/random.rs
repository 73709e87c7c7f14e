//! Random values that fit a schema, the same for the same seed.

use serde_json::{Map, Value, json};

/// A small generator of random numbers (splitmix64): a seed is a sequence, on every machine and for ever.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts a sequence.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

const KEYS: [&str; 3] = ["a", "b", "c"];

/// A value that fits a schema, as custom resources' schemas are written. Beyond those, `x-values` lists what to choose
/// from, and `required` fields are always there.
pub fn value(schema: &Value, random: &mut Random) -> Value {
    if let Some(values) = schema.get("x-values").and_then(Value::as_array) {
        return random.pick(values).clone();
    }
    if schema["nullable"] == true && random.chance(30) || random.chance(2) && schema["x-solid"] != true {
        return Value::Null;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return random.pick(&[json!(1), json!(2), json!("x")]).clone();
    }
    match schema["type"].as_str() {
        Some("string") => json!(*random.pick(&["x", "y"])),
        Some("integer") => json!(random.below(3) + 1),
        Some("boolean") => json!(random.chance(50)),
        Some("array") => list(schema, random),
        Some("object") => object(schema, random),
        _ => anything(random, 0),
    }
}

fn anything(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth > 2 { 4 } else { 9 }) {
        0 | 1 => json!(*random.pick(&["x", "y"])),
        2 => json!(random.below(2) + 1),
        3 => json!(true),
        4 => (0..random.below(3)).map(|_| anything(random, depth + 1)).collect(),
        5 if random.chance(30) => Value::Null,
        _ => some_keys(random, |random| anything(random, depth + 1)),
    }
}

fn some_keys(random: &mut Random, mut make: impl FnMut(&mut Random) -> Value) -> Value {
    let mut fields = Map::new();
    for key in KEYS {
        if random.chance(45) {
            fields.insert(key.into(), make(random));
        }
    }
    Value::Object(fields)
}

fn object(schema: &Value, random: &mut Random) -> Value {
    if schema["x-kubernetes-embedded-resource"] == true {
        let mut inner = json!({"apiVersion": "v1", "kind": "Inner"});
        if random.chance(50) {
            inner["metadata"] = json!({"labels": some_keys(random, |random| json!(*random.pick(&["x", "y"])))});
        }
        if random.chance(60) {
            inner["spec"] = anything(random, 1);
        }
        return inner;
    }
    let mut fields = match some_keys_of(schema, random) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if required.contains(&name.as_str()) || random.chance(35) {
            fields.insert(name.clone(), value(property, random));
        }
    }
    Value::Object(fields)
}

fn some_keys_of(schema: &Value, random: &mut Random) -> Value {
    if schema["additionalProperties"].is_object() {
        some_keys(random, |random| value(&schema["additionalProperties"], random))
    } else if schema["x-kubernetes-preserve-unknown-fields"] == true {
        some_keys(random, |random| anything(random, 1))
    } else {
        Value::Null
    }
}

fn list(schema: &Value, random: &mut Random) -> Value {
    let items = &schema["items"];
    let least = schema["minItems"].as_u64().unwrap_or(0) as usize;
    let count = random.below(4).max(least);
    let keys: Vec<&str> =
        schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let list_type = schema["x-kubernetes-list-type"].as_str().unwrap_or("atomic");
    let mut made: Vec<Value> = Vec::new();
    for _ in 0..count {
        let item = value(items, random);
        let key = |item: &Value| -> Value {
            match list_type {
                "map" => keys
                    .iter()
                    .map(|key| match &item[*key] {
                        Value::Null => items["properties"][*key]["default"].clone(),
                        given => given.clone(),
                    })
                    .collect(),
                _ => item.clone(),
            }
        };
        let twice = made.iter().any(|other| key(other) == key(&item));
        if list_type == "atomic" || !twice || random.chance(3) && schema["x-solid"] != true {
            made.push(item);
        }
    }
    Value::Array(made)
}

/// The value with a part of it left out, added or made anew.
pub fn mutate(old: &Value, schema: &Value, random: &mut Random) -> Value {
    let known = |name: &str| match schema["properties"].get(name) {
        Some(property) => property.clone(),
        None if schema["additionalProperties"].is_object() => schema["additionalProperties"].clone(),
        None => json!({}),
    };
    match old {
        Value::Object(fields) if schema["x-values"].is_null() && !fields.is_empty() && random.chance(85) => {
            // Built-in kinds have fields that are none of the test's business.
            let open = schema["properties"].is_null() || schema["x-kubernetes-preserve-unknown-fields"] == true;
            let names: Vec<&String> =
                fields.keys().filter(|name| open || schema["properties"].get(name.as_str()).is_some()).collect();
            if names.is_empty() {
                return old.clone();
            }
            let name = random.pick(&names).to_string();
            let required = schema["required"].as_array().is_some_and(|all| all.iter().any(|one| *one == name));
            let mut new = fields.clone();
            match random.below(5) {
                0 if !required => {
                    new.remove(&name);
                }
                1 => {
                    let Value::Object(others) = object(schema, random) else { return old.clone() };
                    new.extend(others.into_iter().take(2));
                }
                _ => {
                    let changed = mutate(&fields[&name], &known(&name), random);
                    new.insert(name, changed);
                }
            }
            Value::Object(new)
        }
        Value::Array(items) if schema["x-values"].is_null() && !items.is_empty() && random.chance(75) => {
            let mut new = items.clone();
            let at = random.below(items.len());
            match random.below(4) {
                0 if items.len() > 1 => {
                    new.remove(at);
                }
                1 => new.rotate_left(1),
                2 => {
                    if let Value::Array(more) = list(schema, random) {
                        new.extend(more.into_iter().filter(|item| !items.contains(item)).take(1));
                    }
                }
                _ => new[at] = mutate(&items[at], &schema["items"], random),
            }
            Value::Array(new)
        }
        _ => value(schema, random),
    }
}
