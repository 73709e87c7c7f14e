//! Types of expressions.

use std::fmt;
use std::sync::Arc;

use crate::decl::DeclType;

/// The static type of an expression.
#[derive(Clone, Debug)]
pub enum Type {
    /// Any type; checks wait until evaluation.
    Dyn,
    /// The type of `null`.
    Null,
    /// `bool`
    Bool,
    /// `int`, 64 bits signed.
    Int,
    /// `uint`, 64 bits unsigned.
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `google.protobuf.Duration`
    Duration,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// `list(T)`
    List(Arc<Type>),
    /// `map(K, V)`
    Map(Arc<(Type, Type)>),
    /// `optional_type(T)`
    Optional(Arc<Type>),
    /// `type(T)`: the type of a type.
    Type(Arc<Type>),
    /// An object with declared fields; equal if the names are.
    Object(Arc<DeclType>),
    /// A library's own type, such as `kubernetes.Quantity`.
    Opaque(&'static str),
    /// A type variable, bound during checking.
    Var(u32),
}

impl Type {
    /// `list(element)`
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    /// `map(key, value)`
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// `optional_type(inner)`
    pub fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    /// Whether values of this type have the size of one element.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Duration | Type::Timestamp => true,
            Type::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// Whether both are the same type exactly.
    pub fn same(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b))
            | (Type::Optional(a), Type::Optional(b))
            | (Type::Type(a), Type::Type(b)) => a.same(b),
            (Type::Map(a), Type::Map(b)) => a.0.same(&b.0) && a.1.same(&b.1),
            (Type::Object(a), Type::Object(b)) => a.name() == b.name(),
            (Type::Opaque(a), Type::Opaque(b)) => a == b,
            (Type::Var(a), Type::Var(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        self.same(other)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::List(e) => write!(f, "list({e})"),
            Type::Map(kv) => write!(f, "map({}, {})", kv.0, kv.1),
            Type::Optional(e) => write!(f, "optional_type({e})"),
            Type::Type(e) => write!(f, "type({e})"),
            Type::Object(decl) => f.write_str(decl.name()),
            Type::Opaque(name) => f.write_str(name),
            Type::Var(n) => write!(f, "_var{n}"),
        }
    }
}

/// Types nested deeper than this are not looked into. Variables can stand for types that nest
/// deeper than any expression does, so every walk counts.
const MAX_TYPE_DEPTH: u32 = 400;

/// What type variables stand for, so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    bound: Vec<Option<Type>>,
    /// Earlier values of variables bound since the last choice point.
    trail: Vec<(u32, Option<Type>)>,
}

impl Bindings {
    pub fn fresh(&mut self) -> Type {
        Type::Var(self.fresh_block(1))
    }

    /// Makes `count` variables and returns the first's number.
    pub fn fresh_block(&mut self, count: u32) -> u32 {
        let first = self.bound.len() as u32;
        self.bound.extend((0..count).map(|_| None));
        first
    }

    fn bind(&mut self, var: u32, to: Type) {
        if let Some(slot) = self.bound.get_mut(var as usize) {
            self.trail.push((var, slot.replace(to)));
        }
    }

    /// The variable's type, through other variables. `Err` is the last, unbound variable.
    fn find(&self, mut var: u32) -> Result<&Type, u32> {
        loop {
            match self.bound.get(var as usize).and_then(Option::as_ref) {
                Some(Type::Var(next)) => var = *next,
                Some(other) => return Ok(other),
                None => return Err(var),
            }
        }
    }

    /// Replaces bound variables; unbound ones stay, or become `dyn` if `close` is set.
    pub fn resolve(&self, t: &Type, close: bool) -> Type {
        self.resolve_at(t, close, 0)
    }

    fn resolve_at(&self, t: &Type, close: bool, depth: u32) -> Type {
        if depth > MAX_TYPE_DEPTH {
            return Type::Dyn;
        }
        let next = |t: &Type| self.resolve_at(t, close, depth + 1);
        match t {
            Type::Var(v) => match self.find(*v) {
                Ok(to) => next(to),
                Err(_) if close => Type::Dyn,
                Err(last) => Type::Var(last),
            },
            Type::List(e) => Type::list(next(e)),
            Type::Optional(e) => Type::optional(next(e)),
            Type::Type(e) => Type::Type(Arc::new(next(e))),
            Type::Map(kv) => Type::map(next(&kv.0), next(&kv.1)),
            _ => t.clone(),
        }
    }

    /// Whether a value of type `from` can be used where `to` is expected. Binds variables as far
    /// as needed, and none if the answer is no.
    pub fn assignable(&mut self, to: &Type, from: &Type) -> bool {
        self.all_assignable([(to, from)])
    }

    /// The same for several pairs at once.
    pub fn all_assignable<'t>(&mut self, pairs: impl IntoIterator<Item = (&'t Type, &'t Type)>) -> bool {
        self.trail.clear();
        for (to, from) in pairs {
            if !self.unify(to, from, 0) {
                while let Some((var, old)) = self.trail.pop() {
                    self.bound[var as usize] = old;
                }
                return false;
            }
        }
        true
    }

    fn unify(&mut self, a: &Type, b: &Type, depth: u32) -> bool {
        if depth > MAX_TYPE_DEPTH {
            return false;
        }
        if let Type::Var(v) = b {
            let (valid, known) = self.substitute(a, *v, depth);
            if valid || known {
                return valid;
            }
        }
        if let Type::Var(v) = a {
            return self.substitute(b, *v, depth).0;
        }
        match (a, b) {
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null | Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Duration | Type::Timestamp
            ),
            (Type::List(x), Type::List(y)) | (Type::Optional(x), Type::Optional(y)) => self.unify(x, y, depth + 1),
            (Type::Map(x), Type::Map(y)) => self.unify(&x.0, &y.0, depth + 1) && self.unify(&x.1, &y.1, depth + 1),
            (Type::Type(_), Type::Type(_)) => true,
            _ => a.same(b),
        }
    }

    /// Tries to let variable `var` stand for `t`: (whether it can, whether it was known already).
    fn substitute(&mut self, t: &Type, var: u32, depth: u32) -> (bool, bool) {
        let (var, known) = match self.find(var) {
            Ok(known) => (var, Some(known.clone())),
            Err(last) => (last, None),
        };
        if matches!(t, Type::Var(v) if *v == var || (known.is_none() && self.find(*v) == Err(var))) {
            return (true, true);
        }
        if let Some(known) = known {
            if self.unify(t, &known, depth + 1) {
                let general = if self.less_specific(t, &known, 0) { t.clone() } else { known };
                if self.absent(var, &general, 0) {
                    self.bind(var, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.absent(var, t, 0) {
            self.bind(var, t.clone());
            return (true, false);
        }
        (false, false)
    }

    /// The more general of two types that are assignable to each other.
    pub fn most_general(&self, a: &Type, b: &Type) -> Type {
        if self.less_specific(a, b, 0) { a.clone() } else { b.clone() }
    }

    /// Whether `a` is as general as `b` or more so.
    fn less_specific(&self, a: &Type, b: &Type, depth: u32) -> bool {
        if depth > MAX_TYPE_DEPTH {
            return true;
        }
        match (a, b) {
            (Type::Dyn | Type::Var(_), _) => true,
            (_, Type::Dyn | Type::Var(_)) => false,
            // Null gives way to the type that may be null.
            (Type::Null, Type::Null) => true,
            (Type::Null, _) => false,
            (_, Type::Null) => true,
            (Type::List(x), Type::List(y)) | (Type::Optional(x), Type::Optional(y)) => {
                self.less_specific(x, y, depth + 1)
            }
            (Type::Map(x), Type::Map(y)) => {
                self.less_specific(&x.0, &y.0, depth + 1) && self.less_specific(&x.1, &y.1, depth + 1)
            }
            _ => a.same(b),
        }
    }

    /// Whether the variable does not occur in `t`.
    fn absent(&self, var: u32, t: &Type, depth: u32) -> bool {
        if depth > MAX_TYPE_DEPTH {
            return false;
        }
        match t {
            Type::Var(v) => match self.find(*v) {
                Ok(to) => *v != var && self.absent(var, to, depth + 1),
                Err(last) => last != var,
            },
            Type::List(e) | Type::Optional(e) | Type::Type(e) => self.absent(var, e, depth + 1),
            Type::Map(kv) => self.absent(var, &kv.0, depth + 1) && self.absent(var, &kv.1, depth + 1),
            _ => true,
        }
    }
}
