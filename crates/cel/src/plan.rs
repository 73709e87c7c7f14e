//! From a checked tree to what is evaluated: names resolved, constants computed, regexes compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::regex::Regex;

use crate::ast::{Expr, Fold, FoldKind, Id, Literal};
use crate::budget::Budget;
use crate::checker::{Checked, Reference};
use crate::env::Env;
use crate::lexer::Problem;
use crate::library::standard::CONVERSIONS;
use crate::library::{Context, Decl, regex};
use crate::types::Type;
use crate::value::{List, Value};

/// A step of evaluation.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Value<'static>),
    Global(u32),
    Local(u32),
    Select {
        operand: Box<Node>,
        field: Arc<str>,
        optional: bool,
        base_cost: u64,
    },
    Has {
        operand: Box<Node>,
        field: Arc<str>,
    },
    Index {
        operands: Box<[Node; 2]>,
        optional: bool,
        base_cost: u64,
    },
    And(Box<[Node]>),
    Or(Box<[Node]>),
    Conditional(Box<[Node; 3]>),
    List(Box<[(Node, bool)]>),
    /// Entries (key, value, optional); a repeated key is an error if `unique`, else the last counts.
    Map {
        entries: Box<[(Node, Node, bool)]>,
        unique: bool,
    },
    /// An object that is made: its type's name and its fields (name, value, optional).
    Struct {
        name: Arc<str>,
        fields: Box<[(Arc<str>, Node, bool)]>,
    },
    Add(Box<[Node; 2]>),
    /// `x in [constants]`
    InConstants {
        needle: Box<Node>,
        constants: List<'static>,
    },
    /// `optional.or(…)`, and `optional.orValue(…)` if `unwrap`.
    OptionalOr {
        operands: Box<[Node; 2]>,
        unwrap: bool,
    },
    Call(Box<CallNode>),
    Fold(Box<FoldNode>),
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct CallNode {
    pub function: Arc<str>,
    /// What can be meant; more than one only if types are known at run time alone.
    pub candidates: Vec<Candidate>,
    pub args: Box<[Node]>,
    /// The regex, if the pattern is constant.
    pub regex: Option<Regex>,
}

/// Overloads that share code.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub group: &'static Decl,
    pub params: Vec<Vec<Type>>,
}

/// A macro.
#[derive(Debug)]
pub(crate) struct FoldNode {
    pub kind: FoldKind,
    pub two: bool,
    pub range: Node,
    pub filter: Option<Node>,
    pub body: Node,
}

/// Why there is no plan.
pub(crate) enum Unplanned {
    /// Constants are wrong.
    Wrong(Vec<Problem>),
    /// A constant cannot be computed.
    Impossible(String),
}

/// Plans a checked expression.
pub(crate) fn plan(checked: &Checked, env: &Env) -> Result<Node, Unplanned> {
    let mut planner = Planner {
        checked,
        validate: env.validate_literals,
        unique_keys: env.unique_keys,
        problems: Vec::new(),
        impossible: None,
    };
    let node = planner.node(checked.ast.root);
    match planner.impossible {
        _ if !planner.problems.is_empty() => Err(Unplanned::Wrong(planner.problems)),
        Some(why) => Err(Unplanned::Impossible(why)),
        None => Ok(node),
    }
}

struct Planner<'c> {
    checked: &'c Checked,
    validate: bool,
    unique_keys: bool,
    problems: Vec<Problem>,
    /// Why there can be no program.
    impossible: Option<String>,
}

impl Planner<'_> {
    fn node(&mut self, id: Id) -> Node {
        let checked = self.checked;
        match checked.reference(id) {
            Reference::Global(n) => return Node::Global(*n),
            Reference::Local(n) => return Node::Local(*n),
            Reference::Type(name) => return Node::Const(Value::Type(name)),
            _ => {}
        }
        match checked.ast.expr(id) {
            Expr::Literal(literal) => Node::Const(literal_value(literal)),
            Expr::Select { operand, field, optional } => {
                let base_cost = self.base_cost(*operand);
                Node::Select { operand: self.boxed(*operand), field: field.clone(), optional: *optional, base_cost }
            }
            Expr::Has { operand, field } => Node::Has { operand: self.boxed(*operand), field: field.clone() },
            Expr::Index { operand, index, optional } => {
                let base_cost = self.base_cost(*operand);
                let operands = Box::new([self.node(*operand), self.node(*index)]);
                Node::Index { operands, optional: *optional, base_cost }
            }
            Expr::Call { target, args, .. } => self.call(id, *target, args),
            Expr::And(terms) => Node::And(self.nodes(terms)),
            Expr::Or(terms) => Node::Or(self.nodes(terms)),
            Expr::Conditional(a, b, c) => Node::Conditional(Box::new([self.node(*a), self.node(*b), self.node(*c)])),
            Expr::List(elements) => self.list(elements),
            Expr::Map(entries) => {
                let nodes: Vec<_> =
                    entries.iter().map(|e| (self.node(e.key), self.node(e.value), e.optional)).collect();
                constant_map(&nodes, self.unique_keys)
                    .unwrap_or(Node::Map { entries: nodes.into(), unique: self.unique_keys })
            }
            Expr::Fold(fold) => self.fold(fold),
            Expr::Struct { name, fields } => Node::Struct {
                name: name.clone(),
                fields: fields
                    .iter()
                    .map(|(field, value, optional, _)| (field.clone(), self.node(*value), *optional))
                    .collect(),
            },
            // The checker has refused these.
            Expr::Ident(_) => Node::Const(Value::Null),
        }
    }

    /// What reading from an operand costs on top: values that do not start at a variable cost one
    /// to be turned into something that has fields.
    fn base_cost(&self, operand: Id) -> u64 {
        u64::from(crate::estimate::is_computed(self.checked.ast.expr(operand)))
    }

    fn boxed(&mut self, id: Id) -> Box<Node> {
        Box::new(self.node(id))
    }

    fn nodes(&mut self, ids: &[Id]) -> Box<[Node]> {
        ids.iter().map(|id| self.node(*id)).collect()
    }

    fn list(&mut self, elements: &[(Id, bool)]) -> Node {
        let nodes: Vec<(Node, bool)> = elements.iter().map(|(id, optional)| (self.node(*id), *optional)).collect();
        let constants: Option<Vec<Value<'static>>> = nodes
            .iter()
            .map(|(node, optional)| match node {
                Node::Const(value) if !optional => Some(value.clone()),
                _ => None,
            })
            .collect();
        match constants {
            Some(values) => Node::Const(Value::list(values)),
            None => Node::List(nodes.into()),
        }
    }

    fn call(&mut self, id: Id, target: Option<Id>, args: &[Id]) -> Node {
        let Reference::Call { function, overloads, detached } = self.checked.reference(id) else {
            return Node::Const(Value::Null);
        };
        let target = target.filter(|_| !detached);
        let all: Vec<Id> = target.into_iter().chain(args.iter().copied()).collect();
        let mut nodes: Vec<Node> = all.iter().map(|a| self.node(*a)).collect();
        match (&**function, nodes.as_slice()) {
            ("_+_", [_, _]) => {
                if let (Some(b), Some(a)) = (nodes.pop(), nodes.pop()) {
                    return Node::Add(Box::new([a, b]));
                }
            }
            ("or" | "orValue", [_, _]) => {
                if let (Some(b), Some(a)) = (nodes.pop(), nodes.pop()) {
                    return Node::OptionalOr { operands: Box::new([a, b]), unwrap: &**function == "orValue" };
                }
            }
            ("@in", [_, Node::Const(Value::List(list))]) if !list.is_empty() => {
                let constants = list.clone();
                nodes.truncate(1);
                if let Some(needle) = nodes.pop() {
                    return Node::InConstants { needle: Box::new(needle), constants };
                }
            }
            _ => {}
        }
        let mut candidates: Vec<Candidate> = Vec::new();
        for overload in overloads {
            match candidates.iter_mut().find(|c| std::ptr::eq(c.group, overload.group)) {
                Some(known) => known.params.push(overload.params.clone()),
                None => candidates.push(Candidate { group: overload.group, params: vec![overload.params.clone()] }),
            }
        }
        let position = all.get(1).or(all.first()).map_or(0, |a| self.checked.ast.position(*a));
        let regex = self.constant_regex(function, &nodes, position);
        let call = CallNode { function: function.clone(), candidates, args: nodes.into(), regex };
        self.computed(call, position)
    }

    fn constant_regex(&mut self, function: &str, args: &[Node], position: u32) -> Option<Regex> {
        if !matches!(function, "matches" | "find" | "findAll") {
            return None;
        }
        let [_, Node::Const(Value::String(pattern)), ..] = args else { return None };
        match regex::compile(pattern) {
            Ok(regex) => Some(regex),
            Err(why) => {
                if self.validate {
                    let message = if function == "matches" { "invalid matches argument".to_owned() } else { why };
                    self.problems.push((position, message));
                }
                None
            }
        }
    }

    /// Conversions of constants are computed now.
    fn computed(&mut self, call: CallNode, position: u32) -> Node {
        let (Some(Candidate { group, .. }), [Node::Const(value)]) = (call.candidates.first(), &*call.args) else {
            return Node::Call(Box::new(call));
        };
        if !CONVERSIONS.contains(&&*call.function) {
            return Node::Call(Box::new(call));
        }
        let mut budget = Budget::kubernetes();
        if budget.enter().is_err() {
            return Node::Call(Box::new(call));
        }
        let mut context = Context { budget: &mut budget, regexes: regex::Cache::default(), constant: None };
        match (group.code)(&mut context, std::slice::from_ref(value)) {
            Ok(value) => Node::Const(value),
            Err(why) => {
                if self.validate {
                    match &*call.function {
                        name @ ("duration" | "timestamp") => {
                            self.problems.push((position, format!("invalid {name} argument")));
                        }
                        // Found when the program is made, not when it is checked.
                        _ => self.impossible = Some(why.to_string()),
                    }
                }
                Node::Call(Box::new(call))
            }
        }
    }

    fn fold(&mut self, fold: &Fold) -> Node {
        Node::Fold(Box::new(FoldNode {
            kind: fold.kind,
            two: fold.var2.is_some(),
            range: self.node(fold.range),
            filter: fold.filter.map(|f| self.node(f)),
            body: self.node(fold.body),
        }))
    }
}

fn constant_map(nodes: &[(Node, Node, bool)], unique: bool) -> Option<Node> {
    let mut entries = BTreeMap::new();
    for (key, value, optional) in nodes {
        let (Node::Const(key), Node::Const(value), false) = (key, value, optional) else { return None };
        // A repeated key is an error, which belongs to evaluation.
        if entries.insert(key.as_key()?, value.clone()).is_some() && unique {
            return None;
        }
    }
    Some(Node::Const(Value::map(entries)))
}

fn literal_value(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(b) => Value::Bool(*b),
        Literal::Int(i) => Value::Int(*i),
        Literal::Uint(u) => Value::Uint(*u),
        Literal::Double(d) => Value::Double(*d),
        Literal::String(s) => Value::string(s.clone()),
        Literal::Bytes(b) => Value::Bytes(b.clone()),
    }
}
