//! Evaluation of macros.
//!
//! Costs are those of cel-go's expansion of the same macro, per element: reading the accumulator,
//! testing whether to go on, and the step itself.

use std::collections::BTreeMap;

use crate::ast::FoldKind;
use crate::cost::LIST;
use crate::error::EvalError;
use crate::eval::{Evaluator, insert_new, unsupported_key};
use crate::library::Outcome;
use crate::library::lists::sort_by_keys;
use crate::plan::{FoldNode, Node};
use crate::value::{Key, List, Value, paid};

/// What a macro goes over.
enum Range<'a> {
    List(List<'a>),
    /// Keys, and the map if values are needed.
    Keys(Vec<Value<'a>>, crate::value::Map<'a>),
}

impl<'a> Range<'a> {
    fn len(&self) -> usize {
        match self {
            Range::List(list) => list.len(),
            Range::Keys(keys, _) => keys.len(),
        }
    }
}

impl<'a: 'b, 'b> Evaluator<'a, 'b> {
    pub(crate) fn fold(&mut self, fold: &'a FoldNode) -> Outcome<'a> {
        match fold.kind {
            FoldKind::OptMap | FoldKind::OptFlatMap => return self.optional_map(fold),
            FoldKind::Bind => {
                let value = self.eval(&fold.range)?;
                return self.bound(value, &fold.body);
            }
            _ => {}
        }
        let range = match self.eval(&fold.range)? {
            Value::List(list) => Range::List(list),
            Value::Map(map) => {
                self.ctx.budget.alloc(map.len() as u64 * size_of::<Value<'_>>() as u64)?;
                Range::Keys(map.keys(), map)
            }
            other => return Err(EvalError::overload(format!("iteration over {}", other.type_name()))),
        };
        let outer = self.locals.len();
        let result = match fold.kind {
            FoldKind::All => self.quantify(fold, &range, false),
            FoldKind::Exists => self.quantify(fold, &range, true),
            FoldKind::ExistsOne => self.exists_one(fold, &range),
            FoldKind::TransformMap | FoldKind::TransformMapEntry => self.transform_map(fold, &range),
            FoldKind::SortBy => self.sort_by(fold, &range),
            _ => self.transform_list(fold, &range),
        };
        self.locals.truncate(outer);
        result
    }

    fn bound(&mut self, value: Value<'a>, body: &'a Node) -> Outcome<'a> {
        self.locals.push(value);
        let result = self.eval(body);
        self.locals.pop();
        result
    }

    /// Puts the element's variables on the stack. They stay until the next element or the end.
    fn enter(&mut self, fold: &FoldNode, range: &Range<'a>, i: usize, base: usize) -> Result<(), EvalError> {
        self.ctx.budget.work(1)?;
        self.locals.truncate(base);
        match range {
            Range::List(list) => {
                let item = paid(list.get(i).unwrap_or(Ok(Value::Null))?, self.ctx.budget)?;
                if fold.two {
                    self.locals.push(Value::Int(i as i64));
                }
                self.locals.push(item);
            }
            Range::Keys(keys, map) => {
                let key = keys.get(i).cloned().unwrap_or(Value::Null);
                if fold.two {
                    let value = map.get(&key, self.ctx.budget).unwrap_or(Ok(Value::Null))?;
                    self.locals.push(key);
                    self.locals.push(value);
                } else {
                    self.locals.push(key);
                }
            }
        }
        Ok(())
    }

    /// `all` (`stop` is false) and `exists` (`stop` is true).
    fn quantify(&mut self, fold: &'a FoldNode, range: &Range<'a>, stop: bool) -> Outcome<'a> {
        let base = self.locals.len();
        let mut failure = None;
        let test = if stop { 3 } else { 2 };
        for i in 0..range.len() {
            self.ctx.budget.charge(test + 1)?;
            // An element that cannot be read fails like the predicate would.
            let outcome = self.enter(fold, range, i, base).and_then(|()| self.eval(&fold.body));
            match outcome {
                Ok(Value::Bool(b)) if b == stop => {
                    self.ctx.budget.charge(if i + 1 < range.len() { test + 1 } else { 1 })?;
                    return Ok(Value::Bool(stop));
                }
                Ok(Value::Bool(_)) => {}
                Ok(_) => {
                    failure.get_or_insert(EvalError::overload("predicate that is not a bool"));
                }
                Err(e) if e.is_fatal() => return Err(e),
                Err(e) => {
                    failure.get_or_insert(e);
                }
            }
        }
        self.ctx.budget.charge(1)?;
        failure.map_or(Ok(Value::Bool(!stop)), Err)
    }

    fn predicate(&mut self, node: &'a Node) -> Result<bool, EvalError> {
        match self.eval(node)? {
            Value::Bool(b) => Ok(b),
            _ => Err(EvalError::overload("_?_:_")),
        }
    }

    fn exists_one(&mut self, fold: &'a FoldNode, range: &Range<'a>) -> Outcome<'a> {
        let base = self.locals.len();
        let mut count = 0u64;
        for i in 0..range.len() {
            self.enter(fold, range, i, base)?;
            let holds = self.predicate(&fold.body)?;
            self.ctx.budget.charge(if holds { 2 } else { 0 })?;
            count += u64::from(holds);
        }
        self.ctx.budget.charge(2)?;
        Ok(Value::Bool(count == 1))
    }

    /// `map`, `filter` and `transformList`.
    fn transform_list(&mut self, fold: &'a FoldNode, range: &Range<'a>) -> Outcome<'a> {
        let base = self.locals.len();
        let mut out = Vec::new();
        for i in 0..range.len() {
            self.enter(fold, range, i, base)?;
            let item = if fold.kind == FoldKind::Filter {
                if !self.predicate(&fold.body)? {
                    continue;
                }
                self.ctx.budget.charge(3 + LIST)?;
                self.locals.get(base).cloned().unwrap_or(Value::Null)
            } else {
                if let Some(filter) = &fold.filter
                    && !self.predicate(filter)?
                {
                    continue;
                }
                let item = self.eval(&fold.body)?;
                // A list of one constant costs nothing to make.
                let made = if matches!(fold.body, Node::Const(_)) { 0 } else { LIST };
                self.ctx.budget.charge(2 + made)?;
                item
            };
            self.ctx.budget.alloc(size_of::<Value<'_>>() as u64)?;
            out.push(item);
        }
        self.ctx.budget.charge(1)?;
        Ok(Value::list(out))
    }

    fn transform_map(&mut self, fold: &'a FoldNode, range: &Range<'a>) -> Outcome<'a> {
        let base = self.locals.len();
        let mut out: BTreeMap<Key<'a>, Value<'a>> = BTreeMap::new();
        for i in 0..range.len() {
            self.enter(fold, range, i, base)?;
            if let Some(filter) = &fold.filter
                && !self.predicate(filter)?
            {
                continue;
            }
            let value = self.eval(&fold.body)?;
            self.ctx.budget.alloc(2 * size_of::<Value<'_>>() as u64)?;
            if fold.kind == FoldKind::TransformMap {
                self.ctx.budget.charge(3)?;
                let key = self.locals.get(base).cloned().unwrap_or(Value::Null);
                insert_new(&mut out, key.as_key().ok_or_else(|| unsupported_key(&key))?, value)?;
                continue;
            }
            self.ctx.budget.charge(2)?;
            let Value::Map(entries) = value else { return Err(EvalError::overload("transformMapEntry")) };
            for key in entries.keys() {
                self.ctx.budget.alloc(2 * size_of::<Value<'_>>() as u64)?;
                let value = entries.get(&key, self.ctx.budget).unwrap_or(Ok(Value::Null))?;
                insert_new(&mut out, key.as_key().ok_or_else(|| unsupported_key(&key))?, value)?;
            }
        }
        self.ctx.budget.charge(1)?;
        Ok(Value::map(out))
    }

    fn sort_by(&mut self, fold: &'a FoldNode, range: &Range<'a>) -> Outcome<'a> {
        let Range::List(list) = range else { return Err(EvalError::overload("sortBy")) };
        let base = self.locals.len();
        self.ctx.budget.alloc(2 * list.len() as u64 * size_of::<Value<'_>>() as u64)?;
        let (mut items, mut keys) = (Vec::with_capacity(list.len()), Vec::with_capacity(list.len()));
        for i in 0..list.len() {
            self.enter(fold, range, i, base)?;
            keys.push(self.eval(&fold.body)?);
            items.push(self.locals.get(base).cloned().unwrap_or(Value::Null));
            self.ctx.budget.charge(2 + LIST)?;
        }
        let keys = Value::list(keys);
        let cost = crate::cost::self_compare(&keys);
        self.ctx.budget.charge(3 + cost)?;
        match &keys {
            Value::List(List::Shared(keys, _)) => Ok(Value::list(sort_by_keys(&mut self.ctx, items, keys)?)),
            _ => Err(EvalError::overload("sortBy")),
        }
    }

    /// `optMap` and `optFlatMap`. cel-go evaluates the target twice; here it is charged twice.
    fn optional_map(&mut self, fold: &'a FoldNode) -> Outcome<'a> {
        let before = self.ctx.budget.last_cost();
        let Value::Optional(target) = self.eval(&fold.range)? else { return Err(EvalError::overload("optMap")) };
        let paid = self.ctx.budget.last_cost().saturating_sub(before);
        self.ctx.budget.charge(1)?;
        let Some(inner) = target else {
            self.ctx.budget.charge(1)?;
            return Ok(Value::Optional(None));
        };
        self.ctx.budget.charge(paid.saturating_add(1))?;
        let value = self.bound((*inner).clone(), &fold.body)?;
        if fold.kind == FoldKind::OptMap {
            self.ctx.budget.charge(1)?;
            return Ok(Value::some(value));
        }
        match value {
            value @ Value::Optional(_) => Ok(value),
            _ => Err(EvalError::overload("optFlatMap")),
        }
    }
}
