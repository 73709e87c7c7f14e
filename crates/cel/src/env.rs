//! Environments: which variables and functions an expression may use.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::admission;
use crate::checker::check;
use crate::decl::DeclType;
use crate::library::{Functions, Library};
use crate::parser::{Syntax, parse};
use crate::plan::{Unplanned, plan};
use crate::program::Program;
use crate::source::CompileErrors;
use crate::types::Type;
use crate::validate::validate;

/// What kube-apiserver 1.36 declares everywhere.
const KUBERNETES: [Library; 17] = [
    Library::Standard,
    Library::CrossTypeOrder,
    Library::Optional,
    Library::Strings,
    Library::StringsKubernetes,
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
    Library::TwoVariables,
];

static KUBERNETES_FUNCTIONS: LazyLock<Arc<Functions>> = LazyLock::new(|| Arc::new(Functions::new(&KUBERNETES)));
static MUTATION_FUNCTIONS: LazyLock<Arc<Functions>> = LazyLock::new(|| {
    let all: Vec<Library> = KUBERNETES.into_iter().chain([Library::JsonPatch]).collect();
    Arc::new(Functions::new(&all))
});
static ALL_FUNCTIONS: LazyLock<Arc<Functions>> = LazyLock::new(|| {
    let mut all: Vec<Library> = KUBERNETES.into_iter().filter(|l| *l != Library::StringsKubernetes).collect();
    all.extend([Library::StringsLatest, Library::Math, Library::Encoders, Library::Bindings]);
    Arc::new(Functions::new(&all))
});

/// A declared variable.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub ty: Type,
    pub decl: Option<Arc<DeclType>>,
}

/// Variables, functions and syntax that expressions are compiled against.
#[derive(Clone, Debug)]
pub struct Env {
    pub(crate) functions: Arc<Functions>,
    pub(crate) variables: BTreeMap<String, Variable>,
    pub(crate) container: String,
    pub(crate) homogeneous_literals: bool,
    pub(crate) validate_literals: bool,
    /// Whether a key may not occur twice in a map literal; in Kubernetes the last one counts.
    pub(crate) unique_keys: bool,
    pub(crate) syntax: Syntax,
    /// Whether `Object{…}` and `JSONPatch{…}` can be made.
    pub(crate) mutations: bool,
}

impl Env {
    /// `x-kubernetes-validations`: exactly what kube-apiserver 1.36 declares. Declare `self` and,
    /// for transition rules, `oldSelf`.
    pub fn kubernetes_crd() -> Self {
        Self {
            functions: KUBERNETES_FUNCTIONS.clone(),
            variables: BTreeMap::new(),
            container: String::new(),
            homogeneous_literals: true,
            validate_literals: true,
            unique_keys: false,
            syntax: Syntax { optional: true, two_variables: true, sort_by: true, ..Syntax::default() },
            mutations: false,
        }
    }

    /// Mutating policies: what [`Env::admission`] has, and `Object{…}`, `JSONPatch{…}` and `jsonpatch.escapeKey`.
    pub fn mutation() -> Self {
        let mut env = Self::admission();
        env.functions = MUTATION_FUNCTIONS.clone();
        env.mutations = true;
        env
    }

    /// Admission policies and match conditions: `object`, `oldObject`, `request`,
    /// `namespaceObject`, `authorizer` and `authorizer.requestResource` are declared; declare
    /// `params` and `variables` where they exist.
    pub fn admission() -> Self {
        let mut env = Self::kubernetes_crd()
            .declare("object", Type::Dyn)
            .declare("oldObject", Type::Dyn)
            .declare("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
            .declare("authorizer.requestResource", Type::Opaque("kubernetes.authorization.ResourceCheck"));
        for (name, decl) in [("request", admission::request()), ("namespaceObject", admission::namespace())] {
            env = env.declare_schema(name, decl);
        }
        env
    }

    /// Templates and our own expressions: Kubernetes' functions, and mathematics, base64 and
    /// `cel.bind` besides; lists and maps of mixed types, as JSON has them.
    pub fn templates() -> Self {
        let mut env = Self::kubernetes_crd();
        env.functions = ALL_FUNCTIONS.clone();
        env.homogeneous_literals = false;
        env.syntax =
            Syntax { optional: true, two_variables: true, sort_by: true, bind: true, math: true, quoted_fields: false };
        env
    }

    /// The language as specified, with literals checked when evaluated.
    pub fn standard() -> Self {
        let mut env = Self::templates();
        env.validate_literals = false;
        env.unique_keys = true;
        env.syntax.quoted_fields = true;
        env
    }

    /// Declares a variable of a CEL type.
    #[must_use]
    pub fn declare(mut self, name: &str, ty: Type) -> Self {
        self.variables.insert(name.to_owned(), Variable { ty, decl: None });
        self
    }

    /// Declares a variable whose schema is known: its fields are checked, its bounds are used in
    /// the cost estimate.
    #[must_use]
    pub fn declare_schema(mut self, name: &str, decl: Arc<DeclType>) -> Self {
        self.variables.insert(name.to_owned(), Variable { ty: decl.cel_type(), decl: Some(decl) });
        self
    }

    /// Declares a variable that is an optional of a schema's type (`optionalOldSelf`).
    #[must_use]
    pub fn declare_optional_schema(mut self, name: &str, decl: &Arc<DeclType>) -> Self {
        self.variables.insert(name.to_owned(), Variable { ty: Type::optional(decl.cel_type()), decl: None });
        self
    }

    /// Takes a declared variable away.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.variables.remove(name);
        self
    }

    /// Sets the namespace that unqualified names are looked up in.
    #[must_use]
    pub fn container(mut self, name: &str) -> Self {
        self.container = name.to_owned();
        self
    }

    /// Parses, checks and plans an expression.
    pub fn compile(&self, source: &str) -> Result<Program, CompileErrors> {
        let errors = |problems| CompileErrors::new(source, problems);
        let ast = parse(source, self.syntax).map_err(errors)?;
        let checked = check(ast, self).map_err(errors)?;
        validate(&checked, self).map_err(errors)?;
        let node = plan(&checked, self).map_err(|why| match why {
            Unplanned::Wrong(problems) => errors(problems),
            Unplanned::Impossible(why) => CompileErrors::impossible(source, why),
        })?;
        Ok(Program::new(node, checked, self))
    }

    /// Names to try for `name`, innermost first; a leading dot means the outermost only.
    pub(crate) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_prefix('.') {
            return vec![absolute.to_owned()];
        }
        let mut out = Vec::new();
        let mut container = self.container.as_str();
        while !container.is_empty() {
            out.push(format!("{container}.{name}"));
            container = container.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
        out.push(name.to_owned());
        out
    }
}
