//! Lists as sets.

use super::{Context, Cost, Decl, Outcome};
use crate::compare::contains;
use crate::error::EvalError;
use crate::value::{List, Value};

pub(crate) const DECLS: &[Decl] = &[
    Decl {
        name: "sets.contains",
        overloads: &[("list_sets_contains_list", "(list<A>, list<A>) -> bool")],
        cost: Cost::Sets(1),
        code: |c, a| two(a, |x, y| all_in(c, y, x)),
    },
    Decl {
        name: "sets.equivalent",
        overloads: &[("list_sets_equivalent_list", "(list<A>, list<A>) -> bool")],
        cost: Cost::Sets(2),
        code: |c, a| two(a, |x, y| Ok(all_in(c, y, x)? && all_in(c, x, y)?)),
    },
    Decl {
        name: "sets.intersects",
        overloads: &[("list_sets_intersects_list", "(list<A>, list<A>) -> bool")],
        cost: Cost::Sets(1),
        code: |c, a| {
            two(a, |x, y| {
                for item in x.iter() {
                    if contains(y, &item?, c.budget)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            })
        },
    },
];

fn two<'a>(args: &[Value<'a>], mut holds: impl FnMut(&List<'a>, &List<'a>) -> Result<bool, EvalError>) -> Outcome<'a> {
    match args {
        [Value::List(a), Value::List(b)] => Ok(Value::Bool(holds(a, b)?)),
        _ => Err(EvalError::overload("sets")),
    }
}

fn all_in<'a>(ctx: &mut Context<'_>, items: &List<'a>, set: &List<'a>) -> Result<bool, EvalError> {
    for item in items.iter() {
        if !contains(set, &item?, ctx.budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}
