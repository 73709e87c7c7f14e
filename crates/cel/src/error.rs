//! What goes wrong when a program runs.

use std::borrow::Cow;

/// Why an evaluation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The expression failed: no such key, division by zero and the like. `&&` and `||` absorb it.
    #[error("{0}")]
    Failed(Cow<'static, str>),
    /// A function was given types it has no overload for. Well-typed expressions without `dyn`
    /// never end here.
    #[error("no such overload: {0}")]
    NoSuchOverload(Cow<'static, str>),
    /// The cost limit of one evaluation was exceeded.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The evaluations that share a budget have used it up.
    #[error("operation cancelled: cost budget exceeded, no further expressions are evaluated")]
    BudgetExhausted,
    /// Intermediate results grew too large.
    #[error("operation cancelled: memory limit exceeded")]
    MemoryLimit,
}

impl EvalError {
    pub(crate) fn failed(message: impl Into<Cow<'static, str>>) -> Self {
        EvalError::Failed(message.into())
    }

    pub(crate) fn overload(function: impl Into<Cow<'static, str>>) -> Self {
        EvalError::NoSuchOverload(function.into())
    }

    pub(crate) fn no_such_key(key: &str) -> Self {
        EvalError::Failed(format!("no such key: {key}").into())
    }

    /// Whether evaluation must stop at once: such errors are never absorbed.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, EvalError::Failed(_) | EvalError::NoSuchOverload(_))
    }
}
