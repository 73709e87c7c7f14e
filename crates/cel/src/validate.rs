//! Checks of literals that Kubernetes makes beyond types: lists and maps of one type only, and
//! `format` called with arguments that fit.

use crate::ast::{Ast, Expr, Id, Literal};
use crate::checker::{Checked, Reference};
use crate::env::Env;
use crate::lexer::Problem;
use crate::library::format_string::Clauses;
use crate::parser::children;
use crate::types::Type;

/// Checks an expression's literals.
pub(crate) fn validate(checked: &Checked, env: &Env) -> Result<(), Vec<Problem>> {
    let mut validator = Validator { checked, ast: &checked.ast, problems: Vec::new() };
    if env.homogeneous_literals {
        validator.visit(checked.ast.root, false);
    }
    if validator.problems.is_empty() { Ok(()) } else { Err(validator.problems) }
}

struct Validator<'c> {
    checked: &'c Checked,
    ast: &'c Ast,
    problems: Vec<Problem>,
}

impl Validator<'_> {
    /// `mixed` is set within `format`, whose arguments may be of any types.
    fn visit(&mut self, id: Id, mut mixed: bool) {
        let ast = self.ast;
        match ast.expr(id) {
            Expr::List(elements) if !mixed => {
                let first = elements.first().map(|(e, optional)| self.element(*e, *optional));
                for (element, optional) in elements.iter().skip(1) {
                    if !self.same(*element, first.as_ref(), *optional) {
                        break;
                    }
                }
            }
            Expr::Map(entries) if !mixed => {
                let first = entries.first().map(|e| (self.element(e.key, false), self.element(e.value, e.optional)));
                for entry in entries.iter().skip(1) {
                    self.same(entry.key, first.as_ref().map(|(k, _)| k), false);
                    self.same(entry.value, first.as_ref().map(|(_, v)| v), entry.optional);
                }
            }
            Expr::Call { target: Some(target), args, .. } if self.is_format(id) => {
                mixed = true;
                self.format(id, *target, args);
            }
            _ => {}
        }
        children(ast.expr(id), |child| self.visit(child, mixed));
    }

    fn element(&self, id: Id, optional: bool) -> Type {
        match self.checked.ty(id) {
            Type::Optional(inner) if optional => (**inner).clone(),
            other => other.clone(),
        }
    }

    fn same(&mut self, id: Id, first: Option<&Type>, optional: bool) -> bool {
        let found = self.element(id, optional);
        match first {
            Some(first) if !first.same(&found) => {
                let message = format!("expected type '{first}' but found '{found}'");
                self.problems.push((self.ast.position(id), message));
                false
            }
            _ => true,
        }
    }

    fn is_format(&self, id: Id) -> bool {
        matches!(self.checked.reference(id), Reference::Call { function, .. } if &**function == "format")
    }

    fn format(&mut self, call: Id, target: Id, args: &[Id]) {
        let (Expr::Literal(Literal::String(text)), [list]) = (self.ast.expr(target), args) else { return };
        let Expr::List(elements) = self.ast.expr(*list) else { return };
        let mut position = self.ast.position(call);
        let mut used = 0;
        for clause in Clauses::new(text) {
            let problem = match clause {
                Err(why) => Some(why.to_string()),
                Ok((_, None)) => None,
                Ok((_, Some((verb, _)))) => match elements.get(used) {
                    None => Some(format!("index {used} out of range")),
                    Some((element, _)) => {
                        used += 1;
                        let t = self.checked.ty(*element);
                        let refused = refused(verb, t);
                        if refused.is_some() {
                            position = self.ast.position(*element);
                        }
                        refused.map(|what| format!("error during formatting: {what}, was given {t}"))
                    }
                },
            };
            if let Some(problem) = problem {
                self.problems.push((position, problem));
                return;
            }
        }
        if elements.len() > used {
            let got = elements.len();
            let message = format!("too many arguments supplied to string.format (expected {used}, got {got})");
            self.problems.push((position, message));
        }
    }
}

/// What a verb can be used on, if that is not the type at hand.
fn refused(verb: char, t: &Type) -> Option<&'static str> {
    let (fits, what) = match verb {
        'd' => (matches!(t, Type::Int | Type::Uint), "decimal clause can only be used on integers"),
        'f' => (matches!(t, Type::Double | Type::String), "fixed-point clause can only be used on doubles"),
        'e' => (matches!(t, Type::Double | Type::String), "scientific clause can only be used on doubles"),
        'b' => (matches!(t, Type::Int | Type::Uint | Type::Bool), "only integers and bools can be formatted as binary"),
        'o' => (matches!(t, Type::Int | Type::Uint), "octal clause can only be used on integers"),
        'x' | 'X' => (
            matches!(t, Type::Int | Type::Uint | Type::Bytes | Type::String),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
        _ => (
            !matches!(t, Type::Optional(_) | Type::Opaque(_) | Type::Object(_)),
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
        ),
    };
    (!fits && !matches!(t, Type::Dyn)).then_some(what)
}
