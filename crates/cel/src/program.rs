//! A compiled expression.

use std::sync::Arc;

use crate::budget::Budget;
use crate::checker::Checked;
use crate::decl::DeclType;
use crate::env::Env;
use crate::error::EvalError;
use crate::estimate::{CostEstimate, Fidelity, estimate};
use crate::eval::Evaluator;
use crate::plan::Node;
use crate::types::Type;
use crate::value::Value;

/// Values of variables.
#[derive(Clone, Debug, Default)]
pub struct Activation<'a> {
    variables: Vec<(&'a str, Value<'a>)>,
}

impl<'a> Activation<'a> {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more variable; a later value of the same name counts.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: Value<'a>) -> Self {
        self.variables.push((name, value));
        self
    }

    fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.variables.iter().rev().find(|(n, _)| *n == name).map(|(_, v)| v)
    }
}

/// A compiled expression: evaluate it as often as needed, from any thread.
#[derive(Debug)]
pub struct Program {
    node: Node,
    checked: Checked,
    /// Declared types of the variables used, in the order of `checked.globals`.
    decls: Vec<Option<Arc<DeclType>>>,
    /// The schema of `self`, or else of the first variable that has one.
    root: Option<Arc<DeclType>>,
}

impl Program {
    pub(crate) fn new(node: Node, checked: Checked, env: &Env) -> Self {
        let decls = checked.globals.iter().map(|g| env.variables.get(&**g).and_then(|v| v.decl.clone())).collect();
        let own = env.variables.get("self").and_then(|v| v.decl.clone());
        let root = own.or_else(|| env.variables.values().find_map(|v| v.decl.clone()));
        Self { node, checked, decls, root }
    }

    /// The type of the result.
    pub fn output_type(&self) -> &Type {
        self.checked.ty(self.checked.ast.root)
    }

    /// Whether the expression uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.checked.globals.iter().any(|g| **g == *variable)
    }

    /// What evaluation can cost, given the bounds of the declared schemas. Kubernetes refuses
    /// rules by the maximum under [`Fidelity::Kubernetes`].
    pub fn estimate(&self, fidelity: Fidelity) -> CostEstimate {
        estimate(&self.checked, &self.decls, self.root.as_deref(), fidelity)
    }

    /// Evaluates the expression.
    pub fn evaluate<'a>(&'a self, activation: &Activation<'a>, budget: &mut Budget) -> Result<Value<'a>, EvalError> {
        budget.enter()?;
        let globals = self.checked.globals.iter().map(|name| activation.get(name).cloned()).collect();
        let result = Evaluator::new(&self.checked.globals, globals, budget).eval(&self.node);
        budget.leave();
        result
    }

    /// Evaluates an expression whose result must be a bool.
    pub fn evaluate_bool<'a>(&'a self, activation: &Activation<'a>, budget: &mut Budget) -> Result<bool, EvalError> {
        match self.evaluate(activation, budget)? {
            Value::Bool(b) => Ok(b),
            other => Err(EvalError::failed(format!("expected bool, got {}", other.type_name()))),
        }
    }
}
