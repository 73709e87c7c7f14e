//! Strategic merge patch: a merge patch that knows the schema. Lists that the schema says so about are merged item by
//! item, and directives (`$patch`, `$retainKeys`, `$deleteFromPrimitiveList/…`, `$setElementOrder/…`) say what plain
//! values cannot.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::{Merge, Schema};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

type Fields = Map<String, Value>;

/// Applies a strategic merge patch to an object of the type that `schema` describes.
pub fn apply_strategic_merge_patch(object: &Value, patch: &Value, schema: Schema<'_>) -> Result<Value, PatchError> {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            merge_map(object.clone(), patch.clone(), Some(schema)).map(Value::Object)
        }
        // Go reads null as a patch without fields.
        (Value::Object(_), Value::Null) => Ok(object.clone()),
        _ => Err(malformed("invalid JSON document")),
    }
}

fn malformed(message: impl Into<String>) -> PatchError {
    PatchError::Malformed(message.into())
}

fn no_merge_key(item: &Value, key: &str) -> PatchError {
    malformed(format!("map: {item} does not contain declared merge key: {key}"))
}

/// What the schema says about a field: how it is merged, and the type of what is in it.
fn lookup<'a>(schema: Option<Schema<'a>>, key: &str) -> (Merge, Option<Schema<'a>>) {
    let merge = schema.and_then(|schema| schema.field(key)).map(|field| field.merge.clone()).unwrap_or_default();
    (merge, schema.and_then(|schema| schema.child(key)))
}

fn merge_map(mut original: Fields, mut patch: Fields, schema: Option<Schema<'_>>) -> Result<Fields, PatchError> {
    if let Some(directive) = patch.remove(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Fields::new()),
            _ => Err(unknown_directive(&directive)),
        };
    }
    if let Some(keys) = patch.remove(RETAIN_KEYS) {
        retain_keys(&mut original, &patch, &keys)?;
    }
    set_element_order(&mut original, &mut patch, schema)?;
    for (key, change) in patch {
        let (key, deletion) = match key.strip_prefix(DELETE_FROM) {
            Some(rest) => {
                let key = rest.strip_prefix('/').ok_or_else(|| malformed("invalid patch format of primitive list"))?;
                (key.to_owned(), true)
            }
            None => (key, false),
        };
        if change.is_null() {
            original.remove(&key);
            continue;
        }
        match (original.remove(&key), change) {
            (Some(Value::Object(current)), Value::Object(change)) => {
                let (merge, child) = lookup(schema, &key);
                let merged = if merge.replace { change } else { merge_map(current, change, child)? };
                original.insert(key, Value::Object(merged));
            }
            (Some(Value::Array(current)), Value::Array(change)) => {
                let (merge, child) = lookup(schema, &key);
                let items = child.and_then(Schema::items);
                let merged = if merge.merge || deletion {
                    merge_list(current, change, items, merge.key.as_deref().unwrap_or_default(), deletion)?
                } else {
                    change
                };
                original.insert(key, Value::Array(merged));
            }
            (current, _) if deletion => {
                original.extend(current.map(|current| (key, current)));
            }
            (_, change) => {
                original.extend(plain(change).map(|value| (key, value)));
            }
        }
    }
    Ok(original)
}

fn unknown_directive(directive: &Value) -> PatchError {
    let name = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
    malformed(format!("unknown patch type: {name} in map"))
}

/// A value that is put where nothing to merge with was: without nulls and without what carries a `$patch` directive.
fn plain(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(PATCH) {
                return None;
            }
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Some(Value::Object(kept.filter_map(|(key, value)| Some((key, plain(value)?))).collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(plain).collect())),
        other => Some(other),
    }
}

/// Drops all fields that the patch does not list; it must list what it sets.
fn retain_keys(original: &mut Fields, patch: &Fields, keys: &Value) -> Result<(), PatchError> {
    let bad = || malformed("invalid patch format of retainKeys");
    let keys: BTreeSet<&str> = keys.as_array().ok_or_else(bad)?.iter().filter_map(Value::as_str).collect();
    let listed = |(key, value): (&String, &Value)| {
        value.is_null() || key.starts_with(DELETE_FROM) || key.starts_with(ELEMENT_ORDER) || keys.contains(key.as_str())
    };
    if !patch.iter().all(listed) {
        return Err(bad());
    }
    original.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// Merges the lists whose order the patch gives, and takes them out of the patch.
fn set_element_order(original: &mut Fields, patch: &mut Fields, schema: Option<Schema<'_>>) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let bad = || malformed("invalid patch format of setElementOrder list");
        let key = directive.strip_prefix(ELEMENT_ORDER).and_then(|rest| rest.strip_prefix('/')).ok_or_else(bad)?;
        let Some(Value::Array(order)) = patch.remove(&directive) else { return Err(bad()) };
        let (merge, child) = lookup(schema, key);
        let merge_key = merge.key.as_deref().unwrap_or_default();
        let list = |value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(malformed(format!("expected a list at {key}, but received {other}"))),
        };
        let (current, change) = (list(original.get(key).cloned())?, list(patch.remove(key))?);
        check_order(change.as_deref().unwrap_or_default(), &order, merge_key)?;
        let kind = element_kind(current.iter().flatten().chain(change.iter().flatten()));
        let mut live = current.clone().unwrap_or_default();
        let merged = match (current, change) {
            (None, None) => continue,
            (Some(current), None) => current,
            (None, Some(change)) => change.into_iter().filter_map(remove_directives).collect(),
            (Some(current), Some(change)) if merge.merge => {
                reuse_places(&mut live, &change, merge_key);
                merge_list(current, change, child.and_then(Schema::items), merge_key, false)?
            }
            (Some(_), Some(change)) => change,
        };
        let merged = ordered(merged, &order, &live, merge_key, kind?)?;
        original.insert(key.to_owned(), Value::Array(merged));
    }
    Ok(())
}

/// Kubernetes writes new items into the places of those it deletes before it looks at the live order. Clients see where
/// items end up, so it is part of the behaviour.
fn reuse_places(live: &mut Vec<Value>, change: &[Value], merge_key: &str) {
    if merge_key.is_empty() {
        return;
    }
    let id = |item: &Value| item.get(merge_key).map(Value::to_string);
    let deletes = |item: &&Value| item.get(PATCH).is_some_and(|directive| directive == "delete");
    let gone: BTreeSet<_> = change.iter().filter(deletes).filter_map(id).collect();
    let before = live.len();
    live.retain(|item| id(item).is_none_or(|id| !gone.contains(&id)));
    let known: BTreeSet<_> = live.iter().filter_map(id).collect();
    let new = change.iter().filter(|item| item.get(PATCH).is_none() && id(item).is_some_and(|id| !known.contains(&id)));
    let places = before - live.len();
    live.extend(new.take(places).cloned());
}

/// Like [`plain`], but nulls stay.
fn remove_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(PATCH) {
                return None;
            }
            let kept = fields.into_iter().filter_map(|(key, value)| Some((key, remove_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(remove_directives).collect())),
        other => Some(other),
    }
}

/// The items of the patch must stand in the order list, in its order.
fn check_order(items: &[Value], order: &[Value], merge_key: &str) -> Result<(), PatchError> {
    if items.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut order = order.iter();
    for item in items.iter().filter(|item| item.get(PATCH).is_none()) {
        let wanted = identity(item, merge_key)?;
        loop {
            let Some(next) = order.next() else {
                let message = format!("The order in patch list doesn't match {ELEMENT_ORDER} list at {wanted}");
                return Err(malformed(message));
            };
            if identity(next, merge_key)? == wanted {
                break;
            }
        }
    }
    Ok(())
}

/// What the items of a list are. All of them must be of one type, and none may be a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Map,
    Text,
    Whole,
    Fraction,
    Truth,
}

fn element_kind<'a>(items: impl Iterator<Item = &'a Value>) -> Result<Kind, PatchError> {
    let mut kind = None;
    for item in items {
        let this = match item {
            Value::Object(_) => Kind::Map,
            Value::String(_) => Kind::Text,
            Value::Number(number) if number.is_f64() => Kind::Fraction,
            Value::Number(_) => Kind::Whole,
            Value::Bool(_) => Kind::Truth,
            Value::Array(_) if kind.is_none() => {
                return Err(PatchError::DoesNotApply("lists of lists are not supported".to_owned()));
            }
            Value::Array(_) | Value::Null => return Err(malformed("list element types are not identical")),
        };
        if *kind.get_or_insert(this) != this {
            return Err(malformed("list element types are not identical"));
        }
    }
    kind.ok_or_else(|| malformed("no elements in any of the given slices"))
}

/// What tells an item of a list from the others, as text that is equal exactly if the items are the same.
fn identity(item: &Value, merge_key: &str) -> Result<String, PatchError> {
    if merge_key.is_empty() {
        return Ok(item.to_string());
    }
    let Some(fields) = item.as_object() else {
        return Err(malformed(format!("expected an object with the merge key {merge_key}, but received {item}")));
    };
    fields.get(merge_key).map(Value::to_string).ok_or_else(|| no_merge_key(item, merge_key))
}

/// Where each item stands; of equal ones the first counts.
fn positions(items: &[Value], merge_key: &str) -> Result<BTreeMap<String, usize>, PatchError> {
    let mut positions = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        positions.entry(identity(item, merge_key)?).or_insert(at);
    }
    Ok(positions)
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    items: Option<Schema<'_>>,
    merge_key: &str,
    deletion: bool,
) -> Result<Vec<Value>, PatchError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let kind = element_kind(original.iter().chain(&patch))?;
    if kind != Kind::Map {
        if deletion {
            let gone: BTreeSet<String> = patch.iter().map(Value::to_string).collect();
            return Ok(original.into_iter().filter(|item| !gone.contains(&item.to_string())).collect());
        }
        let mut seen = BTreeSet::new();
        let both = original.iter().chain(&patch).filter(|item| seen.insert(item.to_string())).cloned().collect();
        return ordered(both, &patch, &original, "", kind);
    }
    if merge_key.is_empty() {
        return Err(malformed("cannot merge lists without merge key"));
    }
    let (original, patch) = special_items(original, patch, merge_key)?;
    let mut merged = original.clone();
    // Items of the stored object without the key are never matched; the check of the order will refuse them.
    let mut known = BTreeMap::new();
    for (at, item) in merged.iter().enumerate() {
        if let Some(value) = item.get(merge_key) {
            known.entry(value.to_string()).or_insert(at);
        }
    }
    for item in &patch {
        let id = identity(item, merge_key)?;
        match (known.get(&id).and_then(|at| merged.get_mut(*at)), item) {
            (Some(current), Value::Object(change)) => {
                let fields = current.as_object().cloned().unwrap_or_default();
                *current = Value::Object(merge_map(fields, change.clone(), items)?);
            }
            _ => {
                known.insert(id, merged.len());
                merged.push(item.clone());
            }
        }
    }
    ordered(merged, &patch, &original, merge_key, kind)
}

/// Carries out `$patch` directives among the items: deletes some, or replaces the list by the rest of the patch.
fn special_items(
    original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut deleted = BTreeSet::new();
    let mut rest = Vec::new();
    let mut replace = false;
    for item in patch {
        match item.get(PATCH) {
            None => rest.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => drop(deleted.insert(identity(&item, merge_key)?)),
                Some("replace") => replace = true,
                Some("merge") => return Err(malformed("merging lists cannot yet be specified in the patch")),
                _ => return Err(unknown_directive(directive)),
            },
        }
    }
    if replace {
        return Ok((rest, Vec::new()));
    }
    let gone = |item: &Value| item.get(merge_key).is_some_and(|value| deleted.contains(&value.to_string()));
    Ok((original.into_iter().filter(|item| !gone(item)).collect(), rest))
}

/// Puts items in order: those of `first` in its order, the others in the order of `second`, and where both are in
/// `second`, as they stand there. Items only in `first` therefore come before what the object had.
fn ordered(
    items: Vec<Value>,
    first: &[Value],
    second: &[Value],
    merge_key: &str,
    kind: Kind,
) -> Result<Vec<Value>, PatchError> {
    let merge_key = if kind == Kind::Map { merge_key } else { "" };
    let (first, second) = (positions(first, merge_key)?, positions(second, merge_key)?);
    let mut ahead = Vec::new();
    let mut others = Vec::new();
    for item in items {
        let id = identity(&item, merge_key)?;
        let place = second.get(&id).copied();
        match first.get(&id) {
            Some(rank) => ahead.push((*rank, place, item)),
            None => others.push((place.unwrap_or(usize::MAX), place, item)),
        }
    }
    ahead.sort_by_key(|(rank, ..)| *rank);
    others.sort_by_key(|(rank, ..)| *rank);
    let mut result = Vec::with_capacity(ahead.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, place, item) in ahead {
        while let Some((_, _, other)) =
            others.next_if(|(_, other, _)| matches!((other, place), (Some(o), Some(p)) if *o < p))
        {
            result.push(other);
        }
        result.push(item);
    }
    result.extend(others.map(|(_, _, item)| item));
    Ok(result)
}
