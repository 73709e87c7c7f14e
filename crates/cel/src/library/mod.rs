//! Functions: their signatures, their costs, and what they do.

pub mod authz;
pub(crate) mod encoders;
pub(crate) mod format_string;
pub(crate) mod json_patch;
pub(crate) mod lists;
pub(crate) mod math;
pub mod named_format;
pub mod net;
pub(crate) mod operators;
pub(crate) mod optional;
pub mod quantity;
pub(crate) mod regex;
pub mod semver;
pub(crate) mod sets;
pub(crate) mod standard;
pub(crate) mod strings;
pub(crate) mod times;
pub mod url;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::budget::Budget;
use crate::error::EvalError;
use crate::types::Type;
use crate::value::Value;

/// What a function may use besides its arguments.
pub(crate) struct Context<'b> {
    pub budget: &'b mut Budget,
    pub regexes: regex::Cache,
    /// The regex of the current call, if its pattern is a constant.
    pub constant: Option<&'b ::regex::Regex>,
}

/// The result of a function.
pub(crate) type Outcome<'a> = Result<Value<'a>, EvalError>;
/// A function's code. Arguments are checked again here: with `dyn` anything can arrive.
pub(crate) type Implementation = for<'a> fn(&mut Context<'_>, &[Value<'a>]) -> Outcome<'a>;

/// How a call is charged, both in the estimate and at run time; see `cost.rs`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cost {
    /// One unit.
    One,
    /// The first argument is read through once; the result is as long.
    Scan,
    /// The first argument is read through once; the result has no size.
    Parse,
    /// The first argument is read through twice; no size.
    ParseTwice,
    /// `startsWith`, `endsWith`.
    Affix,
    /// `contains`: product of both.
    Substring,
    /// Product of text and pattern; `found` for `find`/`findAll`, which bound their result.
    Regex {
        found: bool,
    },
    Replace,
    Split,
    Join,
    Quote,
    FormatString,
    StringToBytes,
    BytesToString,
    /// `==`, `!=`, and order of strings and bytes: the shorter of both.
    Comparison,
    /// `x in list`.
    InList,
    /// `+` by types: strings and bytes are copied, lists are not.
    Plus,
    /// Index into list or map.
    Index,
    /// `isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf`: one traversal.
    Traverse,
    /// A list as long as the result.
    ListOut,
    Flatten,
    /// Quadratic: `distinct`, `sort`.
    SelfCompare,
    /// Product of both lists, times the factor.
    Sets(u8),
    Range,
    /// An authorization check.
    Check,
    /// A label or field selector.
    Selector,
    ContainsIp,
    ContainsCidr,
    Validate,
}

/// Functions that share code and cost.
pub(crate) struct Decl {
    pub name: &'static str,
    /// (id, signature): `string.(int) -> string` is a member, `(int) -> string` is not.
    pub overloads: &'static [(&'static str, &'static str)],
    pub cost: Cost,
    pub code: Implementation,
}

/// One signature.
#[derive(Debug)]
pub(crate) struct Overload {
    pub id: &'static str,
    pub member: bool,
    pub params: Vec<Type>,
    pub result: Type,
    /// Number of type variables in it.
    pub vars: u32,
    pub group: &'static Decl,
}

impl std::fmt::Debug for Decl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A set of functions that is on or off as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Library {
    Standard,
    /// `int < double` and its like.
    CrossTypeOrder,
    Optional,
    Strings,
    /// `format` as Kubernetes has it.
    StringsKubernetes,
    /// `format` and `reverse` as the specification has them.
    StringsLatest,
    /// slice, flatten, sort, distinct, range, reverse.
    Lists,
    /// Kubernetes' isSorted, sum, min, max, indexOf, lastIndexOf.
    KubernetesLists,
    Regex,
    Url,
    Quantity,
    Ip,
    Cidr,
    NamedFormat,
    Semver,
    Authorizer,
    Sets,
    Math,
    Encoders,
    TwoVariables,
    Bindings,
    JsonPatch,
}

impl Library {
    fn decls(self) -> &'static [Decl] {
        match self {
            Library::Standard => standard::DECLS,
            Library::CrossTypeOrder => operators::CROSS_TYPE,
            Library::Optional => optional::DECLS,
            Library::Strings => strings::DECLS,
            Library::StringsKubernetes => strings::KUBERNETES,
            Library::StringsLatest => strings::LATEST,
            Library::Lists => lists::EXTENDED,
            Library::KubernetesLists => lists::KUBERNETES,
            Library::Regex => regex::DECLS,
            Library::Url => url::DECLS,
            Library::Quantity => quantity::DECLS,
            Library::Ip => net::IP,
            Library::Cidr => net::CIDR,
            Library::NamedFormat => named_format::DECLS,
            Library::Semver => semver::DECLS,
            Library::Authorizer => authz::DECLS,
            Library::Sets => sets::DECLS,
            Library::Math => math::DECLS,
            Library::Encoders => encoders::DECLS,
            Library::JsonPatch => json_patch::DECLS,
            Library::TwoVariables | Library::Bindings => &[],
        }
    }
}

/// The functions of some libraries, by name.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    by_name: HashMap<&'static str, Vec<Overload>>,
}

impl Functions {
    pub fn new(libraries: &[Library]) -> Self {
        let mut by_name: HashMap<&'static str, Vec<Overload>> = HashMap::new();
        for library in libraries {
            let mut groups: Vec<&'static Decl> = library.decls().iter().collect();
            if *library == Library::Standard {
                groups.extend(operators::DECLS);
                groups.extend(times::DECLS);
            }
            for group in groups {
                let overloads = by_name.entry(group.name).or_default();
                for (id, signature) in group.overloads {
                    if let Some(overload) = parse_signature(id, signature, group) {
                        overloads.push(overload);
                    }
                }
            }
        }
        Self { by_name }
    }

    pub fn get(&self, name: &str) -> Option<&[Overload]> {
        self.by_name.get(name).map(Vec::as_slice)
    }

    #[cfg(test)]
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.by_name.keys().copied()
    }
}

fn parse_signature(id: &'static str, text: &'static str, group: &'static Decl) -> Option<Overload> {
    let mut parser = Signature { rest: text, vars: 0 };
    let mut params = Vec::new();
    let member = !text.starts_with('(');
    if member {
        params.push(parser.ty()?);
        parser.eat(".")?;
    }
    parser.eat("(")?;
    while parser.eat(")").is_none() {
        params.push(parser.ty()?);
        let _ = parser.eat(", ");
    }
    parser.eat(" -> ")?;
    let result = parser.ty()?;
    parser.rest.is_empty().then_some(Overload { id, member, params, result, vars: parser.vars, group })
}

struct Signature {
    rest: &'static str,
    vars: u32,
}

impl Signature {
    fn eat(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    fn ty(&mut self) -> Option<Type> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        let mut params = Vec::new();
        if self.eat("<").is_some() {
            loop {
                params.push(self.ty()?);
                if self.eat(">").is_some() {
                    break;
                }
                self.eat(", ")?;
            }
        }
        Some(match (name, params.as_slice()) {
            ("dyn", []) => Type::Dyn,
            ("null", []) => Type::Null,
            ("bool", []) => Type::Bool,
            ("int", []) => Type::Int,
            ("uint", []) => Type::Uint,
            ("double", []) => Type::Double,
            ("string", []) => Type::String,
            ("bytes", []) => Type::Bytes,
            ("duration", []) => Type::Duration,
            ("timestamp", []) => Type::Timestamp,
            ("list", [e]) => Type::list(e.clone()),
            ("map", [k, v]) => Type::map(k.clone(), v.clone()),
            ("optional", [e]) => Type::optional(e.clone()),
            ("type", [e]) => Type::Type(Arc::new(e.clone())),
            ("Quantity", []) => Type::Opaque("kubernetes.Quantity"),
            ("URL", []) => Type::Opaque("kubernetes.URL"),
            ("IP", []) => Type::Opaque("net.IP"),
            ("CIDR", []) => Type::Opaque("net.CIDR"),
            ("Format", []) => Type::Opaque("kubernetes.NamedFormat"),
            ("Semver", []) => Type::Opaque("kubernetes.Semver"),
            ("Authorizer", []) => Type::Opaque("kubernetes.authorization.Authorizer"),
            ("PathCheck", []) => Type::Opaque("kubernetes.authorization.PathCheck"),
            ("GroupCheck", []) => Type::Opaque("kubernetes.authorization.GroupCheck"),
            ("ResourceCheck", []) => Type::Opaque("kubernetes.authorization.ResourceCheck"),
            ("Decision", []) => Type::Opaque("kubernetes.authorization.Decision"),
            (var, []) if var.len() == 1 => {
                let n = u32::from(var.bytes().next()?.checked_sub(b'A')?);
                self.vars = self.vars.max(n + 1);
                Type::Var(n)
            }
            _ => return None,
        })
    }
}

/// Names of types that can be used as values, with the type they name.
pub(crate) static TYPE_NAMES: LazyLock<HashMap<&'static str, (Type, &'static str)>> = LazyLock::new(|| {
    HashMap::from([
        ("bool", (Type::Bool, "bool")),
        ("int", (Type::Int, "int")),
        ("uint", (Type::Uint, "uint")),
        ("double", (Type::Double, "double")),
        ("string", (Type::String, "string")),
        ("bytes", (Type::Bytes, "bytes")),
        ("null_type", (Type::Null, "null_type")),
        ("list", (Type::list(Type::Dyn), "list")),
        ("map", (Type::map(Type::Dyn, Type::Dyn), "map")),
        ("type", (Type::Type(Arc::new(Type::Dyn)), "type")),
        ("google.protobuf.Duration", (Type::Duration, "google.protobuf.Duration")),
        ("google.protobuf.Timestamp", (Type::Timestamp, "google.protobuf.Timestamp")),
        ("optional_type", (Type::optional(Type::Dyn), "optional_type")),
        ("net.IP", (Type::Opaque("net.IP"), "net.IP")),
        ("net.CIDR", (Type::Opaque("net.CIDR"), "net.CIDR")),
    ])
});

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Library; 21] = [
        Library::Standard,
        Library::CrossTypeOrder,
        Library::Optional,
        Library::Strings,
        Library::StringsKubernetes,
        Library::StringsLatest,
        Library::Lists,
        Library::KubernetesLists,
        Library::Regex,
        Library::Url,
        Library::Quantity,
        Library::Ip,
        Library::Cidr,
        Library::NamedFormat,
        Library::Semver,
        Library::Authorizer,
        Library::Sets,
        Library::Math,
        Library::Encoders,
        Library::TwoVariables,
        Library::Bindings,
    ];

    #[test]
    fn every_signature_is_understood() {
        for library in ALL {
            for group in library.decls().iter().chain(operators::DECLS).chain(times::DECLS) {
                for (id, signature) in group.overloads {
                    assert!(parse_signature(id, signature, group).is_some(), "{}: {signature}", group.name);
                }
            }
        }
        assert!(Functions::new(&ALL).names().count() > 100);
    }
}
