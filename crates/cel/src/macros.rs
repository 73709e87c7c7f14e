//! Recognises macros: calls that bind variables or test for presence.

use std::sync::Arc;

use crate::ast::{Expr, Fold, FoldKind, Id, Literal};
use crate::lexer::Problem;
use crate::parser::Parser;

type Expansion = Result<Option<Id>, Problem>;

/// `has(a.b)`.
pub(crate) fn global(parser: &mut Parser, name: &str, args: &[Id], at: u32) -> Expansion {
    let ("has", [arg]) = (name, args) else { return Ok(None) };
    match parser.ast.expr(*arg).clone() {
        Expr::Select { operand, field, optional: false } => parser.push(Expr::Has { operand, field }, at).map(Some),
        _ => Err((parser.ast.position(*arg), "invalid argument to has() macro".into())),
    }
}

/// `target.name(args)` if it is a macro.
pub(crate) fn member(parser: &mut Parser, target: Id, name: &str, args: &[Id], at: u32) -> Expansion {
    use FoldKind::*;
    let syntax = parser.syntax;
    let namespace = match parser.ast.expr(target) {
        Expr::Ident(name) => name.clone(),
        _ => "".into(),
    };
    let (kind, vars, has_filter) = match (name, args.len()) {
        ("all", 2) => (All, 1, false),
        ("exists", 2) => (Exists, 1, false),
        ("exists_one" | "existsOne", 2) => (ExistsOne, 1, false),
        ("map", 2) => (Map, 1, false),
        ("map", 3) => (Map, 1, true),
        ("filter", 2) => (Filter, 1, false),
        ("all", 3) if syntax.two_variables => (All, 2, false),
        ("exists", 3) if syntax.two_variables => (Exists, 2, false),
        ("exists_one" | "existsOne", 3) if syntax.two_variables => (ExistsOne, 2, false),
        ("transformList", 3) if syntax.two_variables => (Map, 2, false),
        ("transformList", 4) if syntax.two_variables => (Map, 2, true),
        ("transformMap", 3) if syntax.two_variables => (TransformMap, 2, false),
        ("transformMap", 4) if syntax.two_variables => (TransformMap, 2, true),
        ("transformMapEntry", 3) if syntax.two_variables => (TransformMapEntry, 2, false),
        ("transformMapEntry", 4) if syntax.two_variables => (TransformMapEntry, 2, true),
        ("sortBy", 2) if syntax.sort_by => (SortBy, 1, false),
        ("optMap", 2) if syntax.optional => (OptMap, 1, false),
        ("optFlatMap", 2) if syntax.optional => (OptFlatMap, 1, false),
        ("bind", 3) if syntax.bind && &*namespace == "cel" => return bind(parser, args, at).map(Some),
        ("least" | "greatest", _) if syntax.math && &*namespace == "math" => {
            return extreme(parser, name, target, args, at).map(Some);
        }
        _ => return Ok(None),
    };
    let var = variable(parser, args[0])?;
    let var2 = if vars == 2 { Some(variable(parser, args[1])?) } else { None };
    if var2.as_ref() == Some(&var) {
        return Err((parser.ast.position(args[1]), format!("duplicate variable name: {var}")));
    }
    let filter = has_filter.then(|| args[vars]);
    let body = args[args.len() - 1];
    parser.push(Expr::Fold(Fold { kind, range: target, var, var2, filter, body }), at).map(Some)
}

fn variable(parser: &Parser, id: Id) -> Result<Arc<str>, Problem> {
    match parser.ast.expr(id) {
        Expr::Ident(name) if &**name == "__result__" => {
            Err((parser.ast.position(id), "iteration variable overwrites accumulator variable".into()))
        }
        Expr::Ident(name) if !name.starts_with('.') => Ok(name.clone()),
        _ => Err((parser.ast.position(id), "argument must be a simple name".into())),
    }
}

fn bind(parser: &mut Parser, args: &[Id], at: u32) -> Result<Id, Problem> {
    let var = variable(parser, args[0])?;
    let fold = Fold { kind: FoldKind::Bind, range: args[1], var, var2: None, filter: None, body: args[2] };
    parser.push(Expr::Fold(fold), at)
}

/// `math.least(a, b, …)`: one or two numbers, or a list of them.
fn extreme(parser: &mut Parser, name: &str, target: Id, args: &[Id], at: u32) -> Result<Id, Problem> {
    let function: Arc<str> = if name == "least" { "math.@min".into() } else { "math.@max".into() };
    let numeric = |parser: &Parser, id: Id| {
        !matches!(
            parser.ast.expr(id),
            Expr::Literal(Literal::Null | Literal::Bool(_) | Literal::String(_) | Literal::Bytes(_))
                | Expr::Map(_)
                | Expr::Struct { .. }
                | Expr::List(_)
        )
    };
    let refuse = |parser: &Parser, id: Id, what: &str| (parser.ast.position(id), format!("math.{name}() {what}"));
    match args {
        [] => return Err(refuse(parser, target, "requires at least one argument")),
        [one] => {
            let fits = match parser.ast.expr(*one) {
                Expr::List(items) => !items.is_empty() && items.iter().all(|(i, _)| numeric(parser, *i)),
                _ => numeric(parser, *one),
            };
            if !fits {
                return Err(refuse(parser, *one, "invalid single argument value"));
            }
        }
        many => {
            if let Some(bad) = many.iter().find(|id| !numeric(parser, **id)) {
                return Err(refuse(parser, *bad, "simple literal arguments must be numeric"));
            }
        }
    }
    let args = match args {
        [_] | [_, _] => args.to_vec(),
        many => vec![parser.push(Expr::List(many.iter().map(|a| (*a, false)).collect()), at)?],
    };
    parser.push(Expr::Call { function, target: None, args }, at)
}
