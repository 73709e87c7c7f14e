//! Metering: what an evaluation may spend.

use crate::error::EvalError;

/// Kubernetes' limits.
pub mod limits {
    /// Cost of one evaluation.
    pub const PER_CALL: u64 = 1_000_000;
    /// Cost of all evaluations for one custom resource or policy binding.
    pub const PER_RESOURCE: u64 = 10_000_000;
    /// Cost of all match conditions of one webhook or policy.
    pub const MATCH_CONDITIONS: u64 = 2_500_000;
    /// Estimated cost of one rule of a custom resource definition.
    pub const ESTIMATE_PER_RULE: u64 = 10_000_000;
    /// Estimated cost of all rules of a custom resource definition.
    pub const ESTIMATE_PER_DEFINITION: u64 = 100_000_000;
    /// Longest message a messageExpression may yield, in bytes.
    pub const MESSAGE_BYTES: usize = 5 * 1024;
}

/// Work units per unit of cost: what Kubernetes' cost model does not see (comparing deep values
/// costs it as little as comparing numbers) is bounded by this.
const WORK_PER_COST: u64 = 4;
/// Bytes that one evaluation may allocate in all.
const MEMORY: u64 = 64 * 1024 * 1024;

/// What evaluations may still spend. One budget is shared by the evaluations that belong together
/// (all rules of one object); each of them is limited by itself as well.
#[derive(Clone, Debug)]
pub struct Budget {
    call_limit: u64,
    total: u64,
    spent: u64,
    limit: u64,
    cost: u64,
    work: u64,
    memory: u64,
    depth: u32,
}

impl Budget {
    /// Limits each evaluation to `call_limit` and all of them to `total`.
    pub fn new(call_limit: u64, total: u64) -> Self {
        Self { call_limit, total, spent: 0, limit: 0, cost: 0, work: 0, memory: 0, depth: 0 }
    }

    /// Kubernetes' limits for the rules of one custom resource or one policy binding.
    pub fn kubernetes() -> Self {
        Self::new(limits::PER_CALL, limits::PER_RESOURCE)
    }

    /// Cost of the last evaluation.
    pub fn last_cost(&self) -> u64 {
        self.cost
    }

    /// Cost of all evaluations so far.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// What is left of the total.
    pub fn remaining(&self) -> u64 {
        self.total.saturating_sub(self.spent)
    }

    /// Starts an evaluation. An evaluation within another (a lazy variable) adds to it.
    pub(crate) fn enter(&mut self) -> Result<(), EvalError> {
        if self.depth >= 16 {
            return Err(EvalError::failed("variables refer to each other too deeply"));
        }
        if self.depth == 0 {
            if self.remaining() == 0 {
                return Err(EvalError::BudgetExhausted);
            }
            self.limit = self.call_limit.min(self.remaining());
            self.cost = 0;
            self.work = 0;
            self.memory = 0;
        }
        self.depth += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 0 {
            self.spent = self.spent.saturating_add(self.cost);
        }
    }

    #[inline]
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(self.over()) } else { Ok(()) }
    }

    /// Takes back what was charged.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.cost = self.cost.saturating_sub(cost);
    }

    #[cold]
    fn over(&self) -> EvalError {
        if self.limit < self.call_limit { EvalError::BudgetExhausted } else { EvalError::CostLimit }
    }

    /// Counts steps that the cost model gives away: one per value visited, one per 64 bytes.
    #[inline]
    pub(crate) fn work(&mut self, steps: u64) -> Result<(), EvalError> {
        self.work = self.work.saturating_add(steps);
        if self.work > self.limit.saturating_mul(WORK_PER_COST) { Err(self.over()) } else { Ok(()) }
    }

    /// Asks for memory before it is allocated.
    #[inline]
    pub(crate) fn alloc(&mut self, bytes: u64) -> Result<(), EvalError> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > MEMORY { Err(EvalError::MemoryLimit) } else { self.work(bytes / 64) }
    }
}
