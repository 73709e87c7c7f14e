//! Authorization checks: `authorizer.group('').resource('pods').namespace('x').check('create').allowed()`.

use std::fmt;
use std::sync::Arc;

use super::{Context, Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::value::Value;

/// What is asked of an authorizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The service account (namespace, name) to ask for instead of the request's user.
    pub service_account: Option<(String, String)>,
    /// A path that is no resource; the other fields are empty then.
    pub path: Option<String>,
    /// API group.
    pub group: String,
    /// Resource.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Field selector, as written.
    pub field_selector: Option<String>,
    /// Label selector, as written.
    pub label_selector: Option<String>,
    /// Verb.
    pub verb: String,
}

/// An authorizer's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why, or why not.
    pub reason: String,
    /// What went wrong while deciding.
    pub error: Option<String>,
}

/// Answers what the user of a request may do.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Decides one question.
    fn authorize(&self, attributes: &Attributes) -> Decision;
}

/// A step of building a question, or its answer.
#[derive(Clone, Debug)]
pub enum AuthzValue<'a> {
    /// The authorizer itself, perhaps for a service account.
    Authorizer(&'a dyn Authorizer, Attributes),
    /// A check of a path.
    Path(&'a dyn Authorizer, Attributes),
    /// A check in a group, still without resource.
    Group(&'a dyn Authorizer, Attributes),
    /// A check of a resource.
    Resource(&'a dyn Authorizer, Attributes),
    /// The answer.
    Decision(Decision),
}

impl AuthzValue<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            AuthzValue::Authorizer(..) => "kubernetes.authorization.Authorizer",
            AuthzValue::Path(..) => "kubernetes.authorization.PathCheck",
            AuthzValue::Group(..) => "kubernetes.authorization.GroupCheck",
            AuthzValue::Resource(..) => "kubernetes.authorization.ResourceCheck",
            AuthzValue::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

impl<'a> Value<'a> {
    /// The value of the variable `authorizer`.
    pub fn authorizer(authorizer: &'a dyn Authorizer) -> Self {
        Value::Authz(Arc::new(AuthzValue::Authorizer(authorizer, Attributes::default())))
    }

    /// The value of `authorizer.requestResource`: a check of the request's own resource.
    pub fn resource_check(authorizer: &'a dyn Authorizer, attributes: Attributes) -> Self {
        Value::Authz(Arc::new(AuthzValue::Resource(authorizer, attributes)))
    }
}

pub(crate) const DECLS: &[Decl] = &[
    Decl {
        name: "path",
        overloads: &[("authorizer_path", "Authorizer.(string) -> PathCheck")],
        cost: Cost::One,
        code: |_, a| match start(a)? {
            (_, _, "") => Err(EvalError::failed("path must not be empty")),
            (authorizer, mut at, path) => {
                at.path = Some(path.to_owned());
                wrap(AuthzValue::Path(authorizer, at))
            }
        },
    },
    Decl {
        name: "group",
        overloads: &[("authorizer_group", "Authorizer.(string) -> GroupCheck")],
        cost: Cost::One,
        code: |_, a| {
            let (authorizer, mut at, group) = start(a)?;
            at.group = group.to_owned();
            wrap(AuthzValue::Group(authorizer, at))
        },
    },
    Decl {
        name: "serviceAccount",
        overloads: &[("authorizer_serviceaccount", "Authorizer.(string, string) -> Authorizer")],
        cost: Cost::One,
        code: service_account,
    },
    Decl {
        name: "resource",
        overloads: &[("groupcheck_resource", "GroupCheck.(string) -> ResourceCheck")],
        cost: Cost::One,
        code: |_, a| match a {
            [Value::Authz(v), Value::String(resource)] => match &**v {
                AuthzValue::Group(authorizer, at) => {
                    wrap(AuthzValue::Resource(*authorizer, Attributes { resource: resource.to_string(), ..at.clone() }))
                }
                _ => Err(EvalError::overload("resource")),
            },
            _ => Err(EvalError::overload("resource")),
        },
    },
    Decl {
        name: "subresource",
        overloads: RESOURCE,
        cost: Cost::One,
        code: |_, a| refine(a, |at, s| at.subresource = s),
    },
    Decl { name: "namespace", overloads: RESOURCE, cost: Cost::One, code: |_, a| refine(a, |at, s| at.namespace = s) },
    Decl { name: "name", overloads: RESOURCE, cost: Cost::One, code: |_, a| refine(a, |at, s| at.name = s) },
    Decl {
        name: "fieldSelector",
        overloads: RESOURCE,
        cost: Cost::Selector,
        code: |_, a| refine(a, |at, s| at.field_selector = Some(s)),
    },
    Decl {
        name: "labelSelector",
        overloads: RESOURCE,
        cost: Cost::Selector,
        code: |_, a| refine(a, |at, s| at.label_selector = Some(s)),
    },
    Decl {
        name: "check",
        overloads: &[
            ("pathcheck_check", "PathCheck.(string) -> Decision"),
            ("resourcecheck_check", "ResourceCheck.(string) -> Decision"),
        ],
        cost: Cost::Check,
        code: check,
    },
    Decl {
        name: "allowed",
        overloads: &[("decision_allowed", "Decision.() -> bool")],
        cost: Cost::One,
        code: |_, a| answer(a, |d| Value::Bool(d.allowed)),
    },
    Decl {
        name: "reason",
        overloads: &[("decision_reason", "Decision.() -> string")],
        cost: Cost::One,
        code: |_, a| answer(a, |d| Value::string(d.reason.as_str())),
    },
    Decl {
        name: "errored",
        overloads: &[("decision_errored", "Decision.() -> bool")],
        cost: Cost::One,
        code: |_, a| answer(a, |d| Value::Bool(d.error.is_some())),
    },
    Decl {
        name: "error",
        overloads: &[("decision_error", "Decision.() -> string")],
        cost: Cost::One,
        code: |_, a| answer(a, |d| Value::string(d.error.as_deref().unwrap_or(""))),
    },
];

const RESOURCE: &[(&str, &str)] = &[("resourcecheck", "ResourceCheck.(string) -> ResourceCheck")];

fn wrap<'a>(value: AuthzValue<'a>) -> Outcome<'a> {
    Ok(Value::Authz(Arc::new(value)))
}

type Start<'a, 'v> = (&'a dyn Authorizer, Attributes, &'v str);

fn start<'a, 'v>(args: &'v [Value<'a>]) -> Result<Start<'a, 'v>, EvalError> {
    if let [Value::Authz(v), Value::String(text)] = args
        && let AuthzValue::Authorizer(authorizer, at) = &**v
    {
        return Ok((*authorizer, at.clone(), text));
    }
    Err(EvalError::overload("authorizer"))
}

fn service_account<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Authz(v), Value::String(namespace), Value::String(name)] = args else {
        return Err(EvalError::overload("serviceAccount"));
    };
    let AuthzValue::Authorizer(authorizer, at) = &**v else { return Err(EvalError::overload("serviceAccount")) };
    for (text, format) in [(namespace, 0), (name, 1)] {
        let errors = super::named_format::FORMATS[format].validate(text);
        if let Some(error) = errors.first() {
            return Err(EvalError::failed(format!("Invalid service account name: {error}")));
        }
    }
    let service_account = Some((namespace.to_string(), name.to_string()));
    wrap(AuthzValue::Authorizer(*authorizer, Attributes { service_account, ..at.clone() }))
}

fn refine<'a>(args: &[Value<'a>], set: fn(&mut Attributes, String)) -> Outcome<'a> {
    if let [Value::Authz(v), Value::String(text)] = args
        && let AuthzValue::Resource(authorizer, at) = &**v
    {
        let mut at = at.clone();
        set(&mut at, text.to_string());
        return wrap(AuthzValue::Resource(*authorizer, at));
    }
    Err(EvalError::overload("resource check"))
}

fn check<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    if let [Value::Authz(v), Value::String(verb)] = args
        && let AuthzValue::Path(authorizer, at) | AuthzValue::Resource(authorizer, at) = &**v
    {
        let at = Attributes { verb: verb.to_string(), ..at.clone() };
        return wrap(AuthzValue::Decision(authorizer.authorize(&at)));
    }
    Err(EvalError::overload("check"))
}

fn answer<'a>(args: &[Value<'a>], f: fn(&Decision) -> Value<'a>) -> Outcome<'a> {
    if let [Value::Authz(v)] = args
        && let AuthzValue::Decision(decision) = &**v
    {
        return Ok(f(decision));
    }
    Err(EvalError::overload("decision"))
}
