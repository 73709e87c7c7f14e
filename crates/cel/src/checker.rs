//! The type checker: gives every expression a type and every name a meaning.

use std::sync::Arc;

use crate::ast::{Ast, Expr, Fold, FoldKind, Id, Literal};
use crate::env::Env;
use crate::lexer::Problem;
use crate::library::{Overload, TYPE_NAMES};
use crate::types::{Bindings, Type};

/// What a name or call refers to.
#[derive(Clone, Debug, Default)]
pub(crate) enum Reference {
    #[default]
    None,
    /// A declared variable, by its number in [`Checked::globals`].
    Global(u32),
    /// A macro's variable, by its place on the stack.
    Local(u32),
    /// A type used as a value.
    Type(&'static str),
    /// A function. `detached` if what looks like the target is part of the function's name.
    Call { function: Arc<str>, overloads: Vec<Arc<OverloadRef>>, detached: bool },
}

/// An overload that may be meant.
#[derive(Clone, Debug)]
pub(crate) struct OverloadRef {
    pub id: &'static str,
    pub params: Vec<Type>,
    pub group: &'static crate::library::Decl,
}

/// A checked expression.
#[derive(Debug)]
pub(crate) struct Checked {
    pub ast: Ast,
    pub types: Vec<Type>,
    pub references: Vec<Reference>,
    /// Variables used, by name.
    pub globals: Vec<Arc<str>>,
}

impl Checked {
    pub fn ty(&self, id: Id) -> &Type {
        &self.types[id as usize]
    }

    pub fn reference(&self, id: Id) -> &Reference {
        &self.references[id as usize]
    }
}

/// Checks a tree.
pub(crate) fn check(ast: Ast, env: &Env) -> Result<Checked, Vec<Problem>> {
    let size = ast.exprs.len();
    let root = ast.root;
    let mut checker = Checker {
        env,
        types: vec![Type::Dyn; size],
        references: vec![Reference::None; size],
        bindings: Bindings::default(),
        globals: Vec::new(),
        scopes: Vec::new(),
        problems: Vec::new(),
        ast: &ast,
    };
    checker.check(root);
    if !checker.problems.is_empty() {
        return Err(checker.problems);
    }
    let types = checker.types.iter().map(|t| checker.bindings.resolve(t, true)).collect();
    let (references, globals) = (checker.references, checker.globals);
    Ok(Checked { ast, types, references, globals })
}

struct Checker<'e> {
    env: &'e Env,
    ast: &'e Ast,
    types: Vec<Type>,
    references: Vec<Reference>,
    bindings: Bindings,
    globals: Vec<Arc<str>>,
    scopes: Vec<(Arc<str>, Type)>,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn check(&mut self, id: Id) -> Type {
        let ast = self.ast;
        let t = match ast.expr(id) {
            Expr::Literal(literal) => literal_type(literal),
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select { operand, field, optional } => self.select(id, *operand, field, *optional, false),
            Expr::Has { operand, field } => {
                self.select(id, *operand, field, false, true);
                Type::Bool
            }
            Expr::Index { operand, index, optional } => {
                let args = [*operand, *index];
                let types = [self.check(*operand), self.check(*index)];
                self.resolve(id, if *optional { "_[?_]" } else { "_[_]" }, false, &args, &types, false)
            }
            Expr::Call { function, target, args } => self.call(id, function, *target, args),
            Expr::And(terms) | Expr::Or(terms) => {
                for term in terms {
                    let t = self.check(*term);
                    self.expect(*term, &Type::Bool, &t);
                }
                Type::Bool
            }
            Expr::Conditional(condition, yes, no) => {
                let c = self.check(*condition);
                let (a, b) = (self.check(*yes), self.check(*no));
                let var = self.bindings.fresh();
                if self.bindings.all_assignable([(&Type::Bool, &c), (&var, &a), (&var, &b)]) {
                    self.bindings.resolve(&var, false)
                } else {
                    self.no_overload(id, "_?_:_", &[c, a, b], false)
                }
            }
            Expr::List(elements) => {
                let mut joined = None;
                for (element, optional) in elements {
                    let mut t = self.check(*element);
                    if *optional {
                        t = self.unwrap_optional(*element, &t);
                    }
                    joined = Some(self.join(joined, t));
                }
                Type::list(joined.unwrap_or_else(|| self.bindings.fresh()))
            }
            Expr::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for entry in entries {
                    let key = self.check(entry.key);
                    keys = Some(self.join(keys, key));
                    let mut value = self.check(entry.value);
                    if entry.optional {
                        value = self.unwrap_optional(entry.value, &value);
                    }
                    values = Some(self.join(values, value));
                }
                let keys = keys.unwrap_or_else(|| self.bindings.fresh());
                Type::map(keys, values.unwrap_or_else(|| self.bindings.fresh()))
            }
            Expr::Struct { name, fields } => self.structure(id, name, fields),
            Expr::Fold(fold) => self.fold(id, fold),
        };
        self.types[id as usize] = t.clone();
        t
    }

    /// An object that is made: of the types that mutations are made of, any field of any type, save `JSONPatch`'s.
    fn structure(&mut self, id: Id, name: &str, fields: &[(Arc<str>, Id, bool, u32)]) -> Type {
        let mut types = Vec::with_capacity(fields.len());
        for (_, value, optional, _) in fields {
            let t = self.check(*value);
            types.push(if *optional { self.unwrap_optional(*value, &t) } else { t });
        }
        if !self.env.mutations || !crate::mutation::is_made(name) {
            let known = self.env.candidates(name).into_iter().find_map(|name| self.env.variables.get(&name));
            let Some(variable) = known else { return self.undeclared(id, name) };
            let ty = variable.ty.clone();
            for (.., colon) in fields {
                self.problems.push((*colon, format!("unexpected failed resolution of '{name}'")));
            }
            return self.problem(id, format!("'{ty}' is not a type"));
        }
        if name == crate::mutation::PATCH {
            for ((field, _, _, colon), t) in fields.iter().zip(types) {
                match &**field {
                    "op" | "path" | "from" => {
                        if !self.bindings.assignable(&Type::String, &t) {
                            let t = self.bindings.resolve(&t, true);
                            let why =
                                format!("expected type of field '{field}' is 'string' but provided type is '{t}'");
                            self.problems.push((*colon, why));
                        }
                    }
                    "value" => {}
                    _ => {
                        self.problems.push((*colon, format!("undefined field '{field}'")));
                    }
                }
            }
        }
        crate::mutation::made(name)
    }

    fn problem(&mut self, id: Id, message: String) -> Type {
        self.problems.push((self.ast.position(id), message));
        Type::Dyn
    }

    fn undeclared(&mut self, id: Id, name: &str) -> Type {
        let container = &self.env.container;
        self.problem(id, format!("undeclared reference to '{name}' (in container '{container}')"))
    }

    fn no_overload(&mut self, id: Id, name: &str, args: &[Type], member: bool) -> Type {
        let shown: Vec<String> = args.iter().map(|t| self.bindings.resolve(t, true).to_string()).collect();
        let signature = match shown.split_first() {
            Some((target, rest)) if member => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        self.problem(id, format!("found no matching overload for '{name}' applied to '{signature}'"))
    }

    fn expect(&mut self, id: Id, wanted: &Type, found: &Type) {
        if !self.bindings.assignable(wanted, found) {
            let found = self.bindings.resolve(found, true);
            self.problem(id, format!("expected type '{wanted}' but found '{found}'"));
        }
    }

    /// What a macro makes a condition of must be one: it becomes `condition ? result : result`.
    fn condition(&mut self, id: Id, found: &Type, result: &Type) {
        if !self.bindings.assignable(&Type::Bool, found) {
            self.no_overload(id, "_?_:_", &[found.clone(), result.clone(), result.clone()], false);
        }
    }

    fn unwrap_optional(&mut self, id: Id, t: &Type) -> Type {
        match self.bindings.resolve(t, false) {
            Type::Optional(inner) => (*inner).clone(),
            Type::Dyn => Type::Dyn,
            other => self.problem(id, format!("expected type 'optional_type({other})' but found '{other}'")),
        }
    }

    /// The type of list elements or map entries: one for all, or `dyn`.
    fn join(&mut self, previous: Option<Type>, next: Type) -> Type {
        let Some(previous) = previous else { return next };
        if self.bindings.assignable(&previous, &next) {
            return self.bindings.most_general(&previous, &next);
        }
        Type::Dyn
    }

    fn ident(&mut self, id: Id, name: &str) -> Type {
        if let Some(slot) = self.scopes.iter().rposition(|(local, _)| **local == *name) {
            self.references[id as usize] = Reference::Local(slot as u32);
            return self.scopes[slot].1.clone();
        }
        match self.declared(id, name) {
            Some(t) => t,
            None => self.undeclared(id, name.trim_start_matches('.')),
        }
    }

    /// A variable or type of this name, tried in the container and its parents.
    fn declared(&mut self, id: Id, name: &str) -> Option<Type> {
        for candidate in self.env.candidates(name) {
            if let Some(variable) = self.env.variables.get(&candidate) {
                let global = match self.globals.iter().position(|g| **g == *candidate) {
                    Some(known) => known,
                    None => {
                        self.globals.push(candidate.as_str().into());
                        self.globals.len() - 1
                    }
                };
                self.references[id as usize] = Reference::Global(global as u32);
                return Some(variable.ty.clone());
            }
            if let Some((t, type_name)) = TYPE_NAMES.get(candidate.as_str()) {
                self.references[id as usize] = Reference::Type(type_name);
                return Some(Type::Type(Arc::new(t.clone())));
            }
        }
        None
    }

    fn starts_with_local(&self, id: Id) -> bool {
        match self.ast.expr(id) {
            Expr::Ident(name) => self.scopes.iter().any(|(local, _)| local == name),
            Expr::Select { operand, .. } => self.starts_with_local(*operand),
            _ => false,
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &str, optional: bool, test: bool) -> Type {
        if !optional
            && !test
            && let Some(name) = self.ast.qualified_name(id)
            && !self.starts_with_local(id)
            && let Some(t) = self.declared(id, &name)
        {
            return t;
        }
        let operand_type = self.check(operand);
        let mut target = self.bindings.resolve(&operand_type, false);
        let mut wrap = optional;
        if let Type::Optional(inner) = target {
            target = (*inner).clone();
            wrap = true;
        }
        let result = match &target {
            Type::Map(kv) => kv.1.clone(),
            Type::Object(decl) => match decl.field(field) {
                Some(field) => field.decl.cel_type(),
                None => self.problem(id, format!("undefined field '{field}'")),
            },
            Type::Var(_) => {
                self.bindings.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn => Type::Dyn,
            other => self.problem(id, format!("type '{other}' does not support field selection")),
        };
        if wrap { Type::optional(result) } else { result }
    }

    fn call(&mut self, id: Id, function: &Arc<str>, target: Option<Id>, args: &[Id]) -> Type {
        if let Some(target) = target
            && let Some(namespace) = self.ast.qualified_name(target)
            && !self.starts_with_local(target)
        {
            let name = format!("{namespace}.{function}");
            for candidate in self.env.candidates(&name) {
                if self.env.functions.get(&candidate).is_some() {
                    let types: Vec<Type> = args.iter().map(|a| self.check(*a)).collect();
                    return self.resolve(id, &candidate, false, args, &types, true);
                }
            }
        }
        let name = match target {
            Some(_) => function.to_string(),
            None => {
                let known = self.env.candidates(function).into_iter().find(|c| self.env.functions.get(c).is_some());
                known.unwrap_or_else(|| function.to_string())
            }
        };
        let all: Vec<Id> = target.into_iter().chain(args.iter().copied()).collect();
        let types: Vec<Type> = all.iter().map(|a| self.check(*a)).collect();
        if self.env.functions.get(&name).is_none() {
            return self.undeclared(id, function.trim_start_matches('.'));
        }
        self.resolve(id, &name, target.is_some(), &all, &types, false)
    }

    /// Finds the overloads that fit and the type they yield.
    fn resolve(&mut self, id: Id, name: &str, member: bool, args: &[Id], types: &[Type], detached: bool) -> Type {
        let env = self.env;
        let Some(overloads) = env.functions.get(name) else { return self.undeclared(id, name) };
        let mut fitting = Vec::new();
        let mut result: Option<Type> = None;
        for overload in overloads {
            if overload.member != member || overload.params.len() != args.len() {
                continue;
            }
            let first = self.bindings.fresh_block(overload.vars);
            let params: Vec<Type> = overload.params.iter().map(|p| instantiate(p, first)).collect();
            if !self.bindings.all_assignable(types.iter().zip(&params)) {
                continue;
            }
            let yields = self.bindings.resolve(&instantiate(&overload.result, first), false);
            result = Some(match result {
                None => yields,
                Some(known) if matches!(known, Type::Dyn) || known.same(&yields) => known,
                Some(_) => Type::Dyn,
            });
            fitting.push(Arc::new(reference(overload)));
        }
        match result {
            Some(result) => {
                self.references[id as usize] = Reference::Call { function: name.into(), overloads: fitting, detached };
                result
            }
            None => self.no_overload(id, name, types, member),
        }
    }

    fn fold(&mut self, id: Id, fold: &Fold) -> Type {
        let range = self.check(fold.range);
        let range = self.bindings.resolve(&range, false);
        match fold.kind {
            FoldKind::OptMap | FoldKind::OptFlatMap => {
                let inner = match &range {
                    Type::Optional(inner) => (**inner).clone(),
                    Type::Dyn | Type::Var(_) => Type::Dyn,
                    _ => return self.no_overload(id, "hasValue", &[range], true),
                };
                let body = self.scoped(&[(&fold.var, inner)], fold.body);
                if fold.kind == FoldKind::OptMap {
                    return Type::optional(body);
                }
                let wanted = Type::optional(self.bindings.fresh());
                self.expect(fold.body, &wanted, &body);
                return self.bindings.resolve(&wanted, false);
            }
            FoldKind::Bind => return self.scoped(&[(&fold.var, range)], fold.body),
            _ => {}
        }
        let (first, second) = match (&range, &fold.var2) {
            (Type::List(e), None) => ((**e).clone(), None),
            (Type::Map(kv), None) => (kv.0.clone(), None),
            (Type::List(e), Some(_)) => (Type::Int, Some((**e).clone())),
            (Type::Map(kv), Some(_)) => (kv.0.clone(), Some(kv.1.clone())),
            (Type::Dyn | Type::Var(_), _) => {
                self.bindings.assignable(&Type::Dyn, &range);
                (Type::Dyn, Some(Type::Dyn))
            }
            (other, _) => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.problem(fold.range, message);
                (Type::Dyn, Some(Type::Dyn))
            }
        };
        let mut vars = vec![(&fold.var, first.clone())];
        if let (Some(name), Some(t)) = (&fold.var2, second) {
            vars.push((name, t));
        }
        let filter = fold.filter.map(|filter| self.scoped(&vars, filter));
        let body = self.scoped(&vars, fold.body);
        if let Some(filter) = filter {
            let list = fold.kind == FoldKind::Map;
            let result = if list { Type::list(body.clone()) } else { Type::map(first.clone(), body.clone()) };
            self.condition(id, &filter, &result);
        }
        match fold.kind {
            FoldKind::All | FoldKind::Exists => {
                self.expect(fold.body, &Type::Bool, &body);
                Type::Bool
            }
            FoldKind::ExistsOne => {
                self.condition(id, &body, &Type::Int);
                Type::Bool
            }
            FoldKind::Filter => {
                let list = Type::list(first);
                self.condition(id, &body, &list);
                list
            }
            FoldKind::TransformMap => Type::map(first, body),
            FoldKind::TransformMapEntry => {
                let wanted = Type::map(self.bindings.fresh(), self.bindings.fresh());
                self.expect(fold.body, &wanted, &body);
                self.bindings.resolve(&wanted, false)
            }
            FoldKind::SortBy => {
                let key = self.bindings.resolve(&body, true);
                let sortable = matches!(
                    key,
                    Type::Dyn
                        | Type::Bool
                        | Type::Int
                        | Type::Uint
                        | Type::Double
                        | Type::String
                        | Type::Bytes
                        | Type::Duration
                        | Type::Timestamp
                );
                if !sortable || !matches!(range, Type::List(_) | Type::Dyn | Type::Var(_)) {
                    return self.no_overload(id, "@sortByAssociatedKeys", &[range, Type::list(key)], true);
                }
                range
            }
            _ => Type::list(body),
        }
    }

    fn scoped(&mut self, vars: &[(&Arc<str>, Type)], body: Id) -> Type {
        let outer = self.scopes.len();
        self.scopes.extend(vars.iter().map(|(name, t)| ((*name).clone(), t.clone())));
        let t = self.check(body);
        self.scopes.truncate(outer);
        t
    }
}

fn reference(overload: &Overload) -> OverloadRef {
    OverloadRef { id: overload.id, params: overload.params.clone(), group: overload.group }
}

/// The signature's type with its variables numbered from `first`.
fn instantiate(t: &Type, first: u32) -> Type {
    match t {
        Type::Var(n) => Type::Var(first + n),
        Type::List(e) => Type::list(instantiate(e, first)),
        Type::Optional(e) => Type::optional(instantiate(e, first)),
        Type::Type(e) => Type::Type(Arc::new(instantiate(e, first))),
        Type::Map(kv) => Type::map(instantiate(&kv.0, first), instantiate(&kv.1, first)),
        other => other.clone(),
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
