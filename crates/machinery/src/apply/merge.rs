//! Merges an applied configuration into the live object.

use serde_json::{Map, Value};

use super::error::TypeError;
use super::items::{Index, ItemKey, keys};
use super::types::{Handler, ListType, MapType, Type};
use crate::schema::{ListKind, Schema};

/// The live object with what is applied: leaves and atomic values replaced, maps and lists by item. Nothing is removed.
///
/// Items keep the live order unless the configuration asks for another of those it names.
pub fn merge(live: &Value, applied: &Value, schema: Schema<'_>) -> Result<Value, TypeError> {
    Ok(node(Some(live), Some(applied), Type::root(schema))?.unwrap_or(Value::Null))
}

/// The applied value if there is one.
fn leaf(live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    applied.or(live).cloned()
}

fn node(live: Option<&Value>, applied: Option<&Value>, ty: Type<'_>) -> Result<Option<Value>, TypeError> {
    if applied.is_none() {
        // Nothing to merge: as it is. Empty containers and nulls stay what they are.
        return Ok(live.cloned());
    }
    match ty.handler(applied) {
        Handler::Map(map) => {
            let (left, right) = (live.and_then(Value::as_object), applied.and_then(Value::as_object));
            let empty = left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty);
            if map.atomic || empty { Ok(leaf(live, applied)) } else { merge_map(&map, left, right) }
        }
        Handler::List(list) => {
            let left = live.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let right = applied.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            if *list.kind == ListKind::Atomic || left.is_empty() && right.is_empty() {
                Ok(leaf(live, applied))
            } else {
                merge_list(&list, left, right)
            }
        }
        Handler::Scalar(_) => Ok(leaf(live, applied)),
        Handler::None => Err(TypeError::new("", "field not declared in schema")),
    }
}

/// Puts an element in front of an error's path.
fn within<T>(result: Result<T, TypeError>, element: impl FnOnce() -> String) -> Result<T, TypeError> {
    result.map_err(|error| TypeError { path: element() + &error.path, ..error })
}

fn merge_map(
    map: &MapType<'_>,
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
) -> Result<Option<Value>, TypeError> {
    let mut out = live.cloned().unwrap_or_default();
    for (name, right) in applied.into_iter().flatten() {
        let left = live.and_then(|live| live.get(name));
        match within(node(left, Some(right), map.child(name).0), || format!(".{name}"))? {
            Some(value) => out.insert(name.clone(), value),
            None => out.remove(name),
        };
    }
    Ok((!out.is_empty()).then_some(Value::Object(out)))
}

/// One item of the result: which of the live ones, which of the applied ones.
type Pair = (Option<u32>, Option<u32>);

fn merge_list<'v>(list: &ListType<'v>, live: &'v [Value], applied: &'v [Value]) -> Result<Option<Value>, TypeError> {
    let located = |(at, error): (usize, super::items::ItemError)| TypeError::new("", format!("element {at}: {error}"));
    let rights = keys(list, applied).map_err(located)?;
    let lefts = keys(list, live).map_err(located)?;
    let (left_index, right_index) = (Index::new(&lefts), Index::new(&rights));
    if let Some(key) = rights.iter().find(|key| right_index.positions(key).len() > 1) {
        return Err(TypeError::new("", format!("duplicate entries for key {}", key.element())));
    }
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    for (left, right) in order(&lefts, &rights, &left_index, &right_index) {
        // A live item that stands twice is replaced, not merged with.
        let merged = match (left, right) {
            (Some(l), Some(r)) => {
                let l = (left_index.positions(&lefts[l as usize]).len() == 1).then(|| &live[l as usize]);
                let result = node(l.or(Some(&Value::Null)), Some(&applied[r as usize]), list.items);
                within(result, || rights[r as usize].element().to_string())?
            }
            (None, Some(r)) => {
                let result = node(None, Some(&applied[r as usize]), list.items);
                within(result, || rights[r as usize].element().to_string())?
            }
            (Some(l), None) => Some(live[l as usize].clone()),
            (None, None) => None,
        };
        out.extend(merged);
    }
    Ok((!out.is_empty()).then_some(Value::Array(out)))
}

/// The order of the merged items: live items keep their places, except that those which are applied too come in the
/// order of the configuration; new ones follow the applied item before them.
fn order(
    lefts: &[ItemKey<'_>],
    rights: &[ItemKey<'_>],
    left_index: &Index<'_, '_>,
    right_index: &Index<'_, '_>,
) -> Vec<Pair> {
    let in_live = |key: &ItemKey<'_>| left_index.positions(key).first().copied();
    let in_applied = |key: &ItemKey<'_>| right_index.positions(key).first().copied();
    let shared: Vec<u32> = (0..rights.len() as u32).filter(|r| in_live(&rights[*r as usize]).is_some()).collect();
    let mut next_shared = shared.iter().copied().peekable();
    let mut merged = vec![false; rights.len()];
    let mut out = Vec::with_capacity(lefts.len().max(rights.len()));
    let (mut l, mut r) = (0, 0);
    while l < lefts.len() || r < rights.len() {
        if l < lefts.len() && r < rights.len() {
            if lefts[l] == rights[r] {
                merged[r] = true;
                out.push((Some(l as u32), Some(r as u32)));
                l += 1;
                r += 1;
                next_shared.next();
                continue;
            }
            let position = in_applied(&lefts[l]);
            if position.is_some() && next_shared.peek().is_some_and(|next| position != Some(*next)) {
                // Applied too, but not its turn: it comes with its applied twin.
                l += 1;
                continue;
            }
        }
        if l < lefts.len() {
            match in_applied(&lefts[l]) {
                None => {
                    out.push((Some(l as u32), None));
                    l += 1;
                    continue;
                }
                Some(position) if merged[position as usize] => l += 1,
                Some(_) => {}
            }
        }
        if r < rights.len() {
            merged[r] = true;
            out.push((in_live(&rights[r]), Some(r as u32)));
            if next_shared.peek() == Some(&(r as u32)) {
                next_shared.next();
            }
            r += 1;
        }
    }
    out
}
