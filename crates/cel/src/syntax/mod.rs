//! Syntax errors in cel-go's words.
//!
//! cel-go's parser is made by ANTLR. When a token comes that may not, such a parser drops it if the one after it fits,
//! makes up a missing one if that helps, or skips to where one of the rules it is in can go on; each time it says what it
//! expected. This module does the same with the same grammar, so that the messages are the same. It is asked only about
//! what `parser` has refused, and makes nothing but messages.

mod ahead;
mod grammar;

use crate::lexer::{NOWHERE, Problem, Scanned};
use grammar::{CALLER, END, GRAMMAR, Grammar, RULE_COUNT, Rule, Set, Step};

pub(crate) use grammar::KINDS;

/// How deep a rule may be within itself.
const MAX_DEPTH: u16 = 250;
/// How many tokens are skipped at once, how often, and how many errors are told.
const MAX_SKIPPED: usize = 256;
const MAX_RECOVERIES: usize = 30;
const MAX_ERRORS: usize = 100;
/// How much looking ahead there may be in all; whatever is wrong then has been said.
const MAX_WORK: usize = 1_000_000;

/// What is wrong with a source's syntax, in the order in which it is found.
pub(crate) fn errors(source: &Scanned) -> Vec<Problem> {
    let mut parser = Parser {
        grammar: &GRAMMAR,
        source,
        position: 0,
        state: 0,
        frames: Vec::new(),
        depths: [0; RULE_COUNT],
        recovering: false,
        last_error: None,
        last_states: Vec::new(),
        recoveries: 0,
        work: 0,
        problems: source.problems.iter().map(|(at, text)| (*at, format!("Syntax error: {text}"))).collect(),
    };
    // Stopping is telling no more.
    let _ = parser.run();
    parser.problems
}

/// A call of a rule: who called it, and how tightly operators must bind there.
struct Frame {
    caller: usize,
    rule: usize,
    least: u8,
}

struct Parser<'s> {
    grammar: &'static Grammar,
    source: &'s Scanned,
    /// The next token, counted among those that are not blank.
    position: usize,
    /// The step that was last taken of those that can fail.
    state: usize,
    frames: Vec<Frame>,
    depths: [u16; RULE_COUNT],
    /// Whether an error was told and no token has fitted since.
    recovering: bool,
    last_error: Option<usize>,
    last_states: Vec<usize>,
    recoveries: usize,
    work: usize,
    problems: Vec<Problem>,
}

/// Why a rule cannot go on.
enum Failure {
    /// This is wrong at that token: tell it and skip to where somebody can go on.
    At(usize, String),
    /// Nothing more is looked at.
    Stop,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let mut at = 0;
        self.depths[0] = 1;
        loop {
            let taken = match &self.grammar.steps[at] {
                Step::Return => Ok(None),
                _ => self.step(at).map(Some),
            };
            match taken {
                Ok(Some(next)) => at = next,
                Ok(None) => match self.leave() {
                    Some(next) => at = next,
                    None => return Ok(()),
                },
                Err(Failure::Stop) => return Err(Failure::Stop),
                Err(Failure::At(token, message)) => {
                    self.tell(token, message)?;
                    self.blame_name();
                    self.recover()?;
                    match self.leave() {
                        Some(next) => at = next,
                        None => return Ok(()),
                    }
                }
            }
        }
    }

    /// Takes a step and says which is the next.
    fn step(&mut self, at: usize) -> Result<usize, Failure> {
        let grammar = self.grammar;
        match &grammar.steps[at] {
            Step::Match(kinds) => {
                self.state = at;
                self.take(*kinds)?;
                Ok(at + 1)
            }
            Step::Call(rule, least) => {
                self.state = at;
                self.frames.push(Frame { caller: at, rule: *rule, least: *least });
                self.depths[*rule] += 1;
                if self.depths[*rule] > MAX_DEPTH {
                    self.problems.push((NOWHERE, format!("expression recursion limit exceeded: {MAX_DEPTH}")));
                    return Err(Failure::Stop);
                }
                Ok(grammar.starts[*rule])
            }
            Step::Sync { back } => {
                self.state = at;
                self.sync(*back)?;
                Ok(at + 1)
            }
            Step::Unless(end) => Ok(if grammar.next[at + 1] & self.coming(1) != 0 { at + 1 } else { *end }),
            Step::Jump(to) => Ok(*to),
            Step::Choose(alternatives) => self.choose(alternatives),
            Step::Operators(alternatives, end) => {
                let least = self.frames.last().map_or(0, |frame| frame.least);
                let coming = self.coming(1);
                let fits = alternatives.iter().find(|(binds, kinds, _)| *binds >= least && kinds & coming != 0);
                Ok(fits.map_or(*end, |(.., to)| *to))
            }
            Step::Return => Ok(at),
        }
    }

    /// cel-go goes on to look at what it has: a field without a name is wrong once more.
    fn blame_name(&mut self) {
        if let Some(frame) = self.frames.last()
            && frame.rule == Rule::Name as usize
            && self.grammar.rules[frame.caller] == Rule::Member as usize
        {
            self.problems.push((self.source.offset(self.position), "unsupported ident kind".to_owned()));
        }
    }

    fn leave(&mut self) -> Option<usize> {
        let frame = self.frames.pop()?;
        self.depths[frame.rule] -= 1;
        self.state = frame.caller;
        Some(frame.caller + 1)
    }

    /// The token that comes first, second, …, as a set of it alone.
    fn coming(&self, nth: usize) -> Set {
        1 << self.source.kind(self.position + nth - 1)
    }

    fn consume(&mut self) {
        if self.coming(1) != END {
            self.position += 1;
        }
    }

    /// What may come now, whoever called.
    fn expected(&self, at: usize) -> Set {
        let mut set = self.grammar.next[at];
        for frame in self.frames.iter().rev() {
            if set & CALLER == 0 {
                break;
            }
            set = set & !CALLER | self.grammar.next[frame.caller + 1];
        }
        if set & CALLER != 0 { set & !CALLER | END } else { set }
    }

    /// What anybody who has called can go on with.
    fn resumable(&self) -> Set {
        self.frames.iter().fold(0, |set, frame| set | self.grammar.next[frame.caller + 1]) & !CALLER
    }

    fn tell(&mut self, token: usize, message: String) -> Result<(), Failure> {
        if self.recovering {
            return Ok(());
        }
        self.recovering = true;
        self.say(token, message)
    }

    fn say(&mut self, token: usize, message: String) -> Result<(), Failure> {
        let at = self.source.offset(token);
        let full = self.problems.len() >= MAX_ERRORS;
        let message = if full { format!("More than {MAX_ERRORS} syntax errors") } else { message };
        self.problems.push((at, format!("Syntax error: {message}")));
        if full { Err(Failure::Stop) } else { Ok(()) }
    }

    fn fits(&mut self) {
        self.recovering = false;
        self.last_states.clear();
        self.last_error = None;
    }

    fn take(&mut self, kinds: Set) -> Result<(), Failure> {
        if kinds & self.coming(1) == 0 {
            self.count_recovery()?;
            if !self.drop_one()? {
                return self.make_up();
            }
        }
        self.fits();
        self.consume();
        Ok(())
    }

    fn mismatch(&self) -> Failure {
        let (token, wanted) = (self.shown(), names(self.expected(self.state)));
        Failure::At(self.position, format!("mismatched input {token} expecting {wanted}"))
    }

    fn shown(&self) -> String {
        quoted(&self.source.text(self.position, self.position))
    }

    /// Drops the next token if the one after it may come here.
    fn drop_one(&mut self) -> Result<bool, Failure> {
        if self.expected(self.state) & self.coming(2) == 0 {
            return Ok(false);
        }
        self.tell_unwanted()?;
        self.consume();
        self.fits();
        Ok(true)
    }

    fn tell_unwanted(&mut self) -> Result<(), Failure> {
        let (token, wanted) = (self.shown(), names(self.expected(self.state)));
        self.tell(self.position, format!("extraneous input {token} expecting {wanted}"))
    }

    /// Goes on as if the token had come, if the next one may come after it.
    fn make_up(&mut self) -> Result<(), Failure> {
        if self.expected(self.state + 1) & self.coming(1) == 0 {
            return Err(self.mismatch());
        }
        let (token, wanted) = (self.shown(), names(self.expected(self.state)));
        self.tell(self.position, format!("missing {wanted} at {token}"))
    }

    fn sync(&mut self, back: bool) -> Result<(), Failure> {
        if self.recovering || self.grammar.next[self.state] & (CALLER | self.coming(1)) != 0 {
            return Ok(());
        }
        if back {
            self.tell_unwanted()?;
            let until = self.expected(self.state) | self.resumable();
            return self.skip_until(until, usize::MAX);
        }
        if self.drop_one()? { Ok(()) } else { Err(self.mismatch()) }
    }

    fn count_recovery(&mut self) -> Result<(), Failure> {
        self.recoveries += 1;
        if self.recoveries > MAX_RECOVERIES {
            self.say(self.position, format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}"))?;
            return Err(Failure::Stop);
        }
        Ok(())
    }

    fn recover(&mut self) -> Result<(), Failure> {
        self.count_recovery()?;
        let mut most = MAX_SKIPPED;
        if self.last_error == Some(self.position) && self.last_states.contains(&self.state) {
            // Nothing was skipped the last time, and nothing would be now.
            self.consume();
            most -= 1;
        }
        self.last_error = Some(self.position);
        self.last_states.push(self.state);
        self.skip_until(self.resumable(), most)
    }

    fn skip_until(&mut self, set: Set, most: usize) -> Result<(), Failure> {
        let mut skipped = 0;
        while (set | END) & self.coming(1) == 0 {
            if skipped == most {
                let message = format!("error recovery token lookahead limit exceeded: {MAX_SKIPPED}");
                self.problems.push((NOWHERE, message));
                return Err(Failure::Stop);
            }
            self.consume();
            skipped += 1;
        }
        Ok(())
    }
}

fn names(set: Set) -> String {
    let names: Vec<&str> = (0..KINDS.len()).filter(|kind| set >> kind & 1 == 1).map(|kind| KINDS[kind]).collect();
    match names.as_slice() {
        [one] => (*one).to_owned(),
        names => format!("{{{}}}", names.join(", ")),
    }
}

fn quoted(text: &str) -> String {
    let text = if text.is_empty() { "<EOF>" } else { text };
    format!("'{}'", text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r"))
}

#[cfg(test)]
mod tests {
    use crate::Env;

    const OPERAND: &str = "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER";

    /// Each as a real kube-apiserver says it: where, and what.
    #[test]
    fn errors_are_in_the_words_of_cel_go() {
        let check = |source: &str, expected: &[(u32, &str)]| {
            let errors = Env::kubernetes_crd().compile(source).expect_err(source);
            let found: Vec<(u32, String)> =
                errors.issues().iter().map(|issue| (issue.column, issue.message.replace(OPERAND, "…"))).collect();
            let expected: Vec<(u32, String)> = expected.iter().map(|(at, text)| (*at, (*text).to_owned())).collect();
            assert_eq!(found, expected, "{source}");
        };
        check("(1", &[(3, "Syntax error: missing ')' at '<EOF>'")]);
        check("1)", &[(2, "Syntax error: extraneous input ')' expecting <EOF>")]);
        check("1 +", &[(4, "Syntax error: mismatched input '<EOF>' expecting {…}")]);
        check("a.", &[(3, "Syntax error: no viable alternative at input '.'")]);
        check("-1.", &[(4, "Syntax error: no viable alternative at input '.'")]);
        check("a.true", &[(3, "Syntax error: mismatched input 'true' expecting IDENTIFIER")]);
        check("[1, 2", &[(6, "Syntax error: mismatched input '<EOF>' expecting {']', ','}")]);
        check("a ? 1", &[(6, "Syntax error: mismatched input '<EOF>' expecting ':'")]);
        check(
            "a = 1",
            &[
                (3, "Syntax error: token recognition error at: '= '"),
                (5, "Syntax error: extraneous input '1' expecting <EOF>"),
            ],
        );
        check(
            "--",
            &[
                (3, "Syntax error: no viable alternative at input '-'"),
                (3, "Syntax error: mismatched input '<EOF>' expecting {…}"),
            ],
        );
        check(
            "++a",
            &[
                (1, "Syntax error: mismatched input '+' expecting {…}"),
                (2, "Syntax error: extraneous input '+' expecting {…}"),
            ],
        );
        check("has(if)", &[(5, "reserved identifier: if"), (5, "invalid argument to has() macro")]);
        check("", &[(0, "Syntax error: mismatched input '<EOF>' expecting {…}")]);
    }

    #[test]
    fn nothing_takes_for_ever() {
        for (unit, count) in [("-1[", 30_000), ("$", 99_000), ("a b ", 24_000), ("a.", 49_000), ("-1.a[[1,1],", 9_000)]
        {
            let errors = Env::kubernetes_crd().compile(&unit.repeat(count)).expect_err(unit);
            assert!(!errors.issues().is_empty() && errors.issues().len() <= 102, "{unit}");
        }
    }
}
