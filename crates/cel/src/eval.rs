//! The evaluator: walks a plan, charges as it goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::budget::Budget;
use crate::compare::contains;
use crate::cost;
use crate::error::EvalError;
use crate::library::operators::{add, lookup, missing};
use crate::library::{Context, Outcome, regex};
use crate::plan::{CallNode, Candidate, Node};
use crate::types::Type;
use crate::value::{Key, List, Value};

/// State of one evaluation.
pub(crate) struct Evaluator<'a, 'b> {
    names: &'a [Arc<str>],
    globals: Vec<Option<Value<'a>>>,
    /// Macro variables, innermost last.
    pub(crate) locals: Vec<Value<'a>>,
    pub(crate) ctx: Context<'b>,
}

impl<'a: 'b, 'b> Evaluator<'a, 'b> {
    pub fn new(names: &'a [Arc<str>], globals: Vec<Option<Value<'a>>>, budget: &'b mut Budget) -> Self {
        let ctx = Context { budget, regexes: regex::Cache::default(), constant: None };
        Self { names, globals, locals: Vec::new(), ctx }
    }

    /// Evaluates a step. Depth is bounded by the parser; arms that need space are functions of
    /// their own, so that frames stay small.
    pub fn eval(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Global(n) => self.global(*n),
            Node::Local(n) => {
                self.ctx.budget.charge(1)?;
                self.locals.get(*n as usize).cloned().ok_or(EvalError::failed("no such variable"))
            }
            Node::Select { operand, field, optional, base_cost } => self.select(operand, field, *optional, *base_cost),
            Node::Has { operand, field } => self.has(operand, field),
            Node::Index { operands, optional, base_cost } => self.index(operands, *optional, *base_cost),
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Conditional(parts) => self.conditional(parts),
            Node::List(items) => self.list(items),
            Node::Map { entries, unique } => self.map(entries, *unique),
            Node::Struct { name, fields } => self.structure(name, fields),
            Node::Add(operands) => self.add(operands),
            Node::InConstants { needle, constants } => self.in_constants(needle, constants),
            Node::OptionalOr { operands, unwrap } => self.optional_or(operands, *unwrap),
            Node::Call(call) => self.call(call),
            Node::Fold(fold) => self.fold(fold),
        }
    }

    fn global(&mut self, n: u32) -> Outcome<'a> {
        self.ctx.budget.charge(1)?;
        match self.globals.get(n as usize) {
            Some(Some(value)) => Ok(value.clone()),
            _ => {
                let name = self.names.get(n as usize).map_or("", |n| n);
                Err(EvalError::failed(format!("no such attribute(s): {name}")))
            }
        }
    }

    /// The field of a value; `None` if it is not there.
    fn field(&mut self, value: &Value<'a>, field: &str) -> Result<Option<Value<'a>>, EvalError> {
        match value {
            Value::Map(map) => map.field(field, self.ctx.budget).transpose(),
            Value::Optional(Some(inner)) => match &**inner {
                Value::Map(_) | Value::Optional(_) => self.field(inner, field),
                // That a field may not be there is said of what has fields.
                other => Err(EvalError::overload(format!("select of '{field}' from {}", other.type_name()))),
            },
            Value::Optional(None) => Ok(None),
            // Of what has no fields none is there.
            _ => Ok(None),
        }
    }

    fn select(&mut self, operand: &'a Node, field: &'a Arc<str>, optional: bool, base_cost: u64) -> Outcome<'a> {
        let value = self.eval(operand)?;
        let found = self.field(&value, field)?;
        let wrap = optional || matches!(value, Value::Optional(_));
        // Optional steps that lead nowhere cost nothing.
        self.ctx.budget.charge(base_cost + u64::from(!wrap || found.is_some()))?;
        if wrap {
            return Ok(Value::Optional(found.map(Arc::new)));
        }
        found.ok_or_else(|| EvalError::no_such_key(field))
    }

    fn has(&mut self, operand: &'a Node, field: &'a Arc<str>) -> Outcome<'a> {
        let value = self.eval(operand)?;
        match self.field(&value, field) {
            Ok(found) => Ok(Value::Bool(found.is_some())),
            // The field is there, even if its value cannot be read.
            Err(EvalError::Failed(_)) => Ok(Value::Bool(true)),
            Err(other) => Err(other),
        }
    }

    fn index(&mut self, operands: &'a [Node; 2], optional: bool, base_cost: u64) -> Outcome<'a> {
        let value = self.eval(&operands[0])?;
        let key = self.eval(&operands[1])?;
        self.ctx.budget.charge(base_cost)?;
        let (inner, wrap) = match &value {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => (&**inner, true),
            other => (other, optional),
        };
        let found = lookup(&mut self.ctx, inner, &key)?;
        self.ctx.budget.charge(u64::from(!wrap || found.is_some()))?;
        if wrap {
            return Ok(Value::Optional(found.map(Arc::new)));
        }
        found.ok_or_else(|| missing(inner, &key))
    }

    /// `&&` (`stop` is false) and `||` (`stop` is true): one term decides, whatever fails.
    fn logic(&mut self, terms: &'a [Node], stop: bool) -> Outcome<'a> {
        let mut failure = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(b)) if b == stop => return Ok(Value::Bool(stop)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => {
                    failure.get_or_insert(EvalError::overload(if stop { "_||_" } else { "_&&_" }));
                }
                Err(e) if e.is_fatal() => return Err(e),
                Err(e) => {
                    failure.get_or_insert(e);
                }
            }
        }
        failure.map_or(Ok(Value::Bool(!stop)), Err)
    }

    fn conditional(&mut self, parts: &'a [Node; 3]) -> Outcome<'a> {
        let chosen = match self.eval(&parts[0])? {
            Value::Bool(true) => &parts[1],
            Value::Bool(false) => &parts[2],
            _ => return Err(EvalError::overload("_?_:_")),
        };
        let value = self.eval(chosen)?;
        // cel-go resolves a variable that is chosen as part of the choice.
        if matches!(chosen, Node::Global(_) | Node::Local(_) | Node::Select { .. } | Node::Index { .. }) {
            self.ctx.budget.refund(1);
        }
        Ok(value)
    }

    fn list(&mut self, items: &'a [(Node, bool)]) -> Outcome<'a> {
        self.ctx.budget.alloc(items.len() as u64 * size_of::<Value<'_>>() as u64)?;
        let mut out = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.eval(item)?, optional) {
                (value, false) => out.push(value),
                (Value::Optional(value), true) => out.extend(value.map(|v| (*v).clone())),
                (_, true) => return Err(EvalError::overload("optional list element")),
            }
        }
        self.ctx.budget.charge(cost::LIST)?;
        Ok(Value::list(out))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)], unique: bool) -> Outcome<'a> {
        self.ctx.budget.alloc(entries.len() as u64 * 2 * size_of::<Value<'_>>() as u64)?;
        let mut out = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let key = key.as_key().ok_or_else(|| unsupported_key(&key))?;
            let value = match (self.eval(value)?, optional) {
                (value, false) => value,
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (Value::Optional(None), true) => continue,
                (_, true) => return Err(EvalError::overload("optional map entry")),
            };
            if out.insert(key, value).is_some() && unique {
                return Err(EvalError::failed("Failed with repeated key"));
            }
        }
        self.ctx.budget.charge(cost::MAP)?;
        Ok(Value::map(out))
    }

    fn structure(&mut self, name: &'a str, fields: &'a [(Arc<str>, Node, bool)]) -> Outcome<'a> {
        self.ctx.budget.alloc(fields.len() as u64 * 2 * size_of::<Value<'_>>() as u64)?;
        let mut out = BTreeMap::new();
        for (field, value, optional) in fields {
            let value = match (self.eval(value)?, optional) {
                (value, false) => value,
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (Value::Optional(None), true) => continue,
                (_, true) => return Err(EvalError::overload("optional field")),
            };
            out.insert(crate::value::Key::String(crate::value::Str::Borrowed(field)), value);
        }
        self.ctx.budget.charge(cost::STRUCT)?;
        Ok(Value::Map(crate::value::Map::Made(name, Arc::new(out))))
    }

    fn add(&mut self, operands: &'a [Node; 2]) -> Outcome<'a> {
        let a = self.eval(&operands[0])?;
        let b = self.eval(&operands[1])?;
        self.ctx.budget.charge(cost::plus(&a, &b))?;
        add(&mut self.ctx, a, b)
    }

    fn in_constants(&mut self, needle: &'a Node, constants: &List<'static>) -> Outcome<'a> {
        let needle = self.eval(needle)?;
        let list: &List<'a> = constants;
        Ok(Value::Bool(contains(list, &needle, self.ctx.budget)?))
    }

    fn optional_or(&mut self, operands: &'a [Node; 2], unwrap: bool) -> Outcome<'a> {
        match self.eval(&operands[0])? {
            Value::Optional(Some(inner)) if unwrap => Ok((*inner).clone()),
            value @ Value::Optional(Some(_)) => Ok(value),
            Value::Optional(None) => match self.eval(&operands[1])? {
                other @ Value::Optional(_) => Ok(other),
                other if unwrap => Ok(other),
                _ => Err(EvalError::overload("or")),
            },
            _ => Err(EvalError::overload(if unwrap { "orValue" } else { "or" })),
        }
    }

    fn call(&mut self, call: &'a CallNode) -> Outcome<'a> {
        match &*call.args {
            [a] => {
                let args = [self.eval(a)?];
                self.invoke(call, &args)
            }
            [a, b] => {
                let args = [self.eval(a)?, self.eval(b)?];
                self.invoke(call, &args)
            }
            many => {
                let args = many.iter().map(|a| self.eval(a)).collect::<Result<Vec<_>, _>>()?;
                self.invoke(call, &args)
            }
        }
    }

    fn invoke(&mut self, call: &'a CallNode, args: &[Value<'a>]) -> Outcome<'a> {
        let candidate = match call.candidates.as_slice() {
            [one] => Some(one),
            many => many.iter().find(|c| fits(c, args)),
        };
        let Some(candidate) = candidate else { return Err(EvalError::overload(call.function.to_string())) };
        self.ctx.constant = call.regex.as_ref();
        let result = (candidate.group.code)(&mut self.ctx, args);
        self.ctx.constant = None;
        if let Err(e) = &result
            && e.is_fatal()
        {
            return result;
        }
        // A call that fails has cost as much as one that does not.
        let yields = result.as_ref().unwrap_or(&Value::Null);
        let cost = cost::actual(candidate.group.cost, args, yields, self.ctx.budget)?;
        self.ctx.budget.charge(cost)?;
        result
    }
}

pub(crate) fn unsupported_key(key: &Value<'_>) -> EvalError {
    EvalError::failed(format!("unsupported key type: {}", key.type_name()))
}

/// Whether the arguments have the types of one of the signatures, as far as values show it.
fn fits(candidate: &Candidate, args: &[Value<'_>]) -> bool {
    candidate.params.iter().any(|params| params.iter().zip(args).all(|(t, v)| is_of(v, t)))
}

fn is_of(value: &Value<'_>, t: &Type) -> bool {
    match (t, value) {
        (Type::Dyn | Type::Var(_), _) => true,
        (Type::Opaque(name), v) => v.type_name() == *name,
        (Type::List(element), Value::List(list)) => match list.get(0) {
            Some(Ok(first)) => is_of(&first, element),
            _ => true,
        },
        (Type::Optional(_), Value::Optional(_)) => true,
        (Type::Map(_) | Type::Object(_), Value::Map(_)) => true,
        (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Uint, Value::Uint(_))
        | (Type::Double, Value::Double(_))
        | (Type::String, Value::String(_))
        | (Type::Bytes, Value::Bytes(_))
        | (Type::Duration, Value::Duration(_))
        | (Type::Timestamp, Value::Timestamp(_))
        | (Type::Null, Value::Null)
        | (Type::Type(_), Value::Type(_)) => true,
        _ => false,
    }
}

/// Inserts what a macro computed.
pub(crate) fn insert_new<'a>(
    map: &mut BTreeMap<Key<'a>, Value<'a>>,
    key: Key<'a>,
    value: Value<'a>,
) -> Result<(), EvalError> {
    match map.insert(key.clone(), value) {
        None => Ok(()),
        Some(_) => {
            let shown = match key.to_value() {
                Value::String(s) => s.to_string(),
                Value::Int(i) => i.to_string(),
                Value::Uint(u) => u.to_string(),
                Value::Bool(b) => b.to_string(),
                _ => String::new(),
            };
            Err(EvalError::failed(format!("insert failed: key {shown} already exists")))
        }
    }
}
