//! CEL's grammar as a program: what a parser does at each point, and which tokens may come there.

use std::sync::LazyLock;

/// A set of kinds of tokens, a bit each.
pub(super) type Set = u64;

/// The bit of the end of the input: kind 0.
pub(super) const END: Set = 1;
/// In a set of what may come next: the rule may end here, what then comes depends on who called it.
pub(super) const CALLER: Set = 1 << 63;

/// Kinds of tokens in the order in which messages list them, as messages show them.
pub(crate) const KINDS: [&str; 38] = [
    "<EOF>",
    "'=='",
    "'!='",
    "'in'",
    "'<'",
    "'<='",
    "'>='",
    "'>'",
    "'&&'",
    "'||'",
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "'*'",
    "'/'",
    "'%'",
    "'true'",
    "'false'",
    "'null'",
    "WHITESPACE",
    "COMMENT",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
    "ESC_IDENTIFIER",
];

/// One step of a rule. Its index is the state of a parser that is about to take it.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A token of these must come.
    Match(Set),
    /// A rule, for operators that bind at least so tightly.
    Call(usize, u8),
    /// A look at the next token before a choice; `back` at the end of a loop's turn.
    Sync {
        /// Whether it is at the end of a loop's turn.
        back: bool,
    },
    /// Goes on with the next step if its first token comes, else there.
    Unless(usize),
    /// Goes on there.
    Jump(usize),
    /// Goes on with one of these, chosen by looking ahead.
    Choose(Vec<usize>),
    /// Goes on with an operator of these (how tightly it binds, its tokens, where), if one comes and binds enough, else
    /// with the last.
    Operators(Vec<(u8, Set, usize)>, usize),
    /// The rule's end.
    Return,
}

pub(super) const RULE_COUNT: usize = 17;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rule {
    Start,
    Expr,
    Or,
    And,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
    Exprs,
    Elements,
    Fields,
    OptField,
    Entries,
    Name,
    OptExpr,
    Literal,
}

/// What rules are made of.
enum Part {
    Token(&'static [&'static str]),
    Rule(Rule, u8),
    /// May be there.
    Maybe(Vec<Part>),
    /// Any number of times; `far`: whether to go on is not said by the next token alone.
    Any {
        far: bool,
        parts: Vec<Part>,
    },
    /// Once or more.
    Some {
        far: bool,
        token: &'static str,
    },
    /// One of several.
    Either(Vec<Vec<Part>>),
    /// Operators, each with how tightly it binds, the tokens it may begin with and its parts.
    Operators(Vec<(u8, &'static [&'static str], Vec<Part>)>),
}

fn rules() -> [(Rule, Vec<Part>); RULE_COUNT] {
    use Part::{Any, Either, Maybe, Operators};
    use Rule::*;
    let token = |kind: &'static [&'static str]| Part::Token(kind);
    let rule = |rule: Rule| Part::Rule(rule, 0);
    let any = |parts: Vec<Part>| Any { far: false, parts };
    let some = |far: bool, token: &'static str| Part::Some { far, token };
    let chain = |term: Rule, op: &'static [&'static str]| vec![rule(term), any(vec![token(op), rule(term)])];
    let dot = || Maybe(vec![token(&["'.'"])]);
    let optional = || Maybe(vec![token(&["'?'"])]);
    let comma = || Maybe(vec![token(&["','"])]);
    let minus = || Maybe(vec![token(&["'-'"])]);
    let name = || token(&["IDENTIFIER"]);
    let between = |open: &'static [&'static str], inner: Rule, close: &'static [&'static str]| {
        vec![token(open), Maybe(vec![rule(inner)]), comma(), token(close)]
    };
    let pairs = |key: Rule| {
        let more = vec![token(&["','"]), rule(key), token(&["':'"]), rule(Expr)];
        vec![rule(key), token(&["':'"]), rule(Expr), Any { far: true, parts: more }]
    };
    let mut message = vec![dot(), name(), any(vec![token(&["'.'"]), name()])];
    message.extend(between(&["'{'"], Fields, &["'}'"]));
    let arguments = || [token(&["'('"]), Maybe(vec![rule(Exprs)]), token(&["')'"])];
    let relations: &[&str] = &["'<'", "'<='", "'>='", "'>'", "'=='", "'!='", "'in'"];
    let member = vec![
        vec![token(&["'.'"]), optional(), rule(Name)],
        [token(&["'.'"]), name()].into_iter().chain(arguments()).collect(),
        vec![token(&["'['"]), optional(), rule(Expr), token(&["']'"])],
    ];
    [
        (Start, vec![rule(Expr), token(&["<EOF>"])]),
        (Expr, vec![rule(Or), Maybe(vec![token(&["'?'"]), rule(Or), token(&["':'"]), rule(Expr)])]),
        (Or, chain(And, &["'||'"])),
        (And, chain(Relation, &["'&&'"])),
        (Relation, vec![rule(Calc), Operators(vec![(1, relations, vec![token(relations), Part::Rule(Relation, 2)])])]),
        (
            Calc,
            vec![
                rule(Unary),
                Operators(vec![
                    (2, &["'*'", "'/'", "'%'"], vec![token(&["'*'", "'/'", "'%'"]), Part::Rule(Calc, 3)]),
                    (1, &["'+'", "'-'"], vec![token(&["'+'", "'-'"]), Part::Rule(Calc, 2)]),
                ]),
            ],
        ),
        (
            Unary,
            vec![Either(vec![
                vec![rule(Member)],
                vec![some(false, "'!'"), rule(Member)],
                vec![some(true, "'-'"), rule(Member)],
            ])],
        ),
        (Member, vec![rule(Primary), Operators(vec![(1, &["'.'", "'['"], vec![Either(member)])])]),
        (
            Primary,
            vec![Either(vec![
                vec![dot(), name()],
                [dot(), name()].into_iter().chain(arguments()).collect(),
                vec![token(&["'('"]), rule(Expr), token(&["')'"])],
                between(&["'['"], Elements, &["']'"]),
                between(&["'{'"], Entries, &["'}'"]),
                message,
                vec![rule(Literal)],
            ])],
        ),
        (Exprs, chain(Expr, &["','"])),
        (Elements, vec![rule(OptExpr), Any { far: true, parts: vec![token(&["','"]), rule(OptExpr)] }]),
        (Fields, pairs(OptField)),
        (OptField, vec![optional(), rule(Name)]),
        (Entries, pairs(OptExpr)),
        (Name, vec![Either(vec![vec![name()], vec![token(&["ESC_IDENTIFIER"])]])]),
        (OptExpr, vec![optional(), rule(Expr)]),
        (
            Literal,
            vec![Either(vec![
                vec![minus(), token(&["NUM_INT"])],
                vec![token(&["NUM_UINT"])],
                vec![minus(), token(&["NUM_FLOAT"])],
                vec![token(&["STRING"])],
                vec![token(&["BYTES"])],
                vec![token(&["'true'"])],
                vec![token(&["'false'"])],
                vec![token(&["'null'"])],
            ])],
        ),
    ]
}

fn set(kinds: &[&str]) -> Set {
    kinds.iter().filter_map(|kind| KINDS.iter().position(|known| known == kind)).fold(0, |set, bit| set | 1 << bit)
}

/// The grammar, and what follows from it.
pub(super) struct Grammar {
    pub(super) steps: Vec<Step>,
    /// Where each rule begins.
    pub(super) starts: [usize; RULE_COUNT],
    /// The rule of each step.
    pub(super) rules: Vec<usize>,
    /// What may come next at each step.
    pub(super) next: Vec<Set>,
    /// The steps that call each rule.
    pub(super) callers: Vec<Vec<usize>>,
}

pub(super) static GRAMMAR: LazyLock<Grammar> = LazyLock::new(Grammar::new);

impl Grammar {
    fn new() -> Self {
        let mut grammar = Grammar {
            steps: Vec::new(),
            starts: [0; RULE_COUNT],
            rules: Vec::new(),
            next: Vec::new(),
            callers: vec![Vec::new(); RULE_COUNT],
        };
        for (rule, parts) in rules() {
            grammar.starts[rule as usize] = grammar.steps.len();
            grammar.parts(parts);
            grammar.steps.push(Step::Return);
            grammar.rules.resize(grammar.steps.len(), rule as usize);
        }
        for (at, step) in grammar.steps.iter().enumerate() {
            if let Step::Call(rule, _) = step {
                grammar.callers[*rule].push(at);
            }
        }
        grammar.next = (0..grammar.steps.len()).map(|at| grammar.find_next(at)).collect();
        grammar
    }

    fn parts(&mut self, parts: Vec<Part>) {
        parts.into_iter().for_each(|part| self.part(part));
    }

    fn add(&mut self, step: Step) -> usize {
        self.steps.push(step);
        self.steps.len() - 1
    }

    fn part(&mut self, part: Part) {
        match part {
            Part::Token(kinds) => {
                self.add(Step::Match(set(kinds)));
            }
            Part::Rule(rule, least) => {
                self.add(Step::Call(rule as usize, least));
            }
            Part::Maybe(parts) => {
                self.add(Step::Sync { back: false });
                let choice = self.add(Step::Return);
                self.parts(parts);
                self.steps[choice] = Step::Unless(self.steps.len());
            }
            Part::Any { far, parts } => {
                self.add(Step::Sync { back: false });
                let choice = self.add(Step::Return);
                self.parts(parts);
                self.add(Step::Sync { back: true });
                self.add(Step::Jump(choice));
                let end = self.steps.len();
                self.steps[choice] = if far { Step::Choose(vec![choice + 1, end]) } else { Step::Unless(end) };
            }
            Part::Some { far, token } => {
                self.add(Step::Sync { back: false });
                let first = self.add(Step::Match(set(&[token])));
                self.add(Step::Sync { back: true });
                let choice = self.add(Step::Return);
                if far {
                    self.steps[choice] = Step::Choose(vec![first, choice + 1]);
                } else {
                    self.add(Step::Jump(first));
                    self.steps[choice] = Step::Unless(self.steps.len());
                }
            }
            Part::Either(alternatives) => {
                self.add(Step::Sync { back: false });
                let choice = self.add(Step::Return);
                let (mut begins, mut ends) = (Vec::new(), Vec::new());
                for parts in alternatives {
                    begins.push(self.steps.len());
                    self.parts(parts);
                    ends.push(self.add(Step::Return));
                }
                let end = self.steps.len();
                ends.into_iter().for_each(|at| self.steps[at] = Step::Jump(end));
                self.steps[choice] = Step::Choose(begins);
            }
            Part::Operators(alternatives) => {
                self.add(Step::Sync { back: false });
                let choice = self.add(Step::Return);
                let mut begins = Vec::new();
                for (binds, kinds, parts) in alternatives {
                    begins.push((binds, set(kinds), self.steps.len()));
                    self.parts(parts);
                    self.add(Step::Sync { back: true });
                    self.add(Step::Jump(choice));
                }
                self.steps[choice] = Step::Operators(begins, self.steps.len());
            }
        }
    }

    /// Where a call returns to. At the end of an alternative that is the end of them all, whichever it was.
    pub(super) fn back(&self, caller: usize) -> usize {
        match self.steps[caller + 1] {
            Step::Jump(end) => end,
            _ => caller + 1,
        }
    }

    /// Where a parser may be after a step that takes no token and calls nobody.
    pub(super) fn free(&self, at: usize) -> Vec<usize> {
        match &self.steps[at] {
            Step::Match(_) | Step::Call(..) | Step::Return => Vec::new(),
            Step::Sync { .. } => vec![at + 1],
            Step::Unless(end) => vec![at + 1, *end],
            Step::Jump(to) => vec![*to],
            Step::Choose(all) => all.clone(),
            Step::Operators(all, end) => all.iter().map(|(.., to)| *to).chain([*end]).collect(),
        }
    }

    fn find_next(&self, at: usize) -> Set {
        let mut set = 0;
        let mut seen = vec![false; self.steps.len()];
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            match &self.steps[at] {
                Step::Match(kinds) => set |= kinds,
                // No rule is empty: what comes after a call need not be looked at.
                Step::Call(rule, _) => open.push(self.starts[*rule]),
                Step::Return => set |= CALLER,
                _ => open.extend(self.free(at)),
            }
        }
        set
    }
}
