//! Choosing between alternatives by looking ahead, as far as it takes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::grammar::{Grammar, Step};
use super::{Failure, MAX_WORK, Parser, quoted};

/// One way to have come here: the step, the alternative it began with, and the calls under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    at: usize,
    alternative: usize,
    calls: usize,
    /// Whether it has left the rule that the choice is in, to wherever that may be called from.
    left: bool,
}

/// Calls under way, as chains that share their ends: where a call returns to, and the rest. The first is empty.
struct Chains {
    links: Vec<(usize, usize)>,
    known: HashMap<(usize, usize), usize>,
}

impl Chains {
    fn push(&mut self, back: usize, rest: usize) -> usize {
        let links = &mut self.links;
        *self.known.entry((back, rest)).or_insert_with(|| {
            links.push((back, rest));
            links.len() - 1
        })
    }
}

impl Parser<'_> {
    /// Which alternative to go on with: first as if nothing were known of who called, and if that leaves several that
    /// cannot be told apart, once more with it.
    pub(super) fn choose(&mut self, alternatives: &[usize]) -> Result<usize, Failure> {
        let chosen = match self.look(alternatives, false)? {
            Some(chosen) => chosen,
            None => self.look(alternatives, true)?.unwrap_or(0),
        };
        Ok(alternatives[chosen])
    }

    fn look(&mut self, alternatives: &[usize], in_context: bool) -> Result<Option<usize>, Failure> {
        let grammar = self.grammar;
        let mut chains = Chains { links: vec![(0, 0)], known: HashMap::new() };
        let mut calls = 0;
        if in_context {
            for frame in &self.frames {
                calls = chains.push(grammar.back(frame.caller), calls);
            }
        }
        let begin = alternatives.iter().enumerate();
        let begin = begin.map(|(alternative, at)| Way { at: *at, alternative, calls, left: false }).collect();
        let mut ways = spread(grammar, &mut chains, begin, in_context);
        let mut token = self.position;
        loop {
            self.work += ways.len();
            if self.work > MAX_WORK {
                return Err(Failure::Stop);
            }
            let coming = 1 << self.source.kind(token);
            let stepped =
                ways.iter().filter(|way| matches!(grammar.steps[way.at], Step::Match(set) if set & coming != 0));
            let stepped = stepped.map(|way| Way { at: way.at + 1, ..*way }).collect();
            let reached = spread(grammar, &mut chains, stepped, in_context);
            let mut left = reached.iter().map(|way| way.alternative);
            let Some(first) = left.next() else {
                // Nothing fits. What had come to its end by then is not to blame; whoever comes next is.
                let ended = |way: &&Way| way.left || matches!(grammar.steps[way.at], Step::Return) && way.calls == 0;
                return match ways.iter().filter(ended).map(|way| way.alternative).min() {
                    Some(alternative) => Ok(Some(alternative)),
                    None => Err(self.not_viable(token)),
                };
            };
            if left.all(|other| other == first) {
                return Ok(Some(first));
            }
            if in_context {
                let groups = grouped(&reached, |way| (way.at, way.calls));
                let mut least = groups.values().filter_map(|alternatives| alternatives.first());
                let first = least.next().copied();
                if least.all(|other| Some(*other) == first) {
                    return Ok(first);
                }
            } else if undecided(&reached) {
                return Ok(None);
            }
            ways = reached;
            if coming != super::END {
                token += 1;
            }
        }
    }

    fn not_viable(&self, token: usize) -> Failure {
        let text = quoted(&self.source.text(self.position, token));
        let text = if self.source.kind(self.position) == 0 { "'<EOF>'".to_owned() } else { text };
        // cel-go's own exception, for words that are no names.
        let inner = text.trim_matches('\'');
        for word in ["true", "false", "null"] {
            if inner.strip_suffix(word).is_some_and(|before| before.chars().count() == 1) {
                return Failure::At(token, format!("mismatched input '{word}' expecting IDENTIFIER"));
            }
        }
        Failure::At(token, format!("no viable alternative at input {text}"))
    }
}

/// All ways from these on to where a token is needed.
fn spread(grammar: &Grammar, chains: &mut Chains, begin: Vec<Way>, in_context: bool) -> Vec<Way> {
    let mut seen: HashSet<Way> = HashSet::new();
    let mut out = Vec::new();
    let mut open = begin;
    while let Some(way) = open.pop() {
        if !seen.insert(way) {
            continue;
        }
        match &grammar.steps[way.at] {
            Step::Match(_) => out.push(way),
            Step::Call(rule, _) => {
                open.push(Way {
                    at: grammar.starts[*rule],
                    calls: chains.push(grammar.back(way.at), way.calls),
                    ..way
                });
            }
            Step::Return if way.calls != 0 => {
                let (back, rest) = chains.links[way.calls];
                open.push(Way { at: back, calls: rest, ..way });
            }
            Step::Return => {
                let callers = &grammar.callers[grammar.rules[way.at]];
                if in_context || callers.is_empty() {
                    out.push(way);
                } else {
                    open.extend(callers.iter().map(|caller| Way { at: caller + 1, left: true, ..way }));
                }
            }
            _ => open.extend(grammar.free(way.at).into_iter().map(|at| Way { at, ..way })),
        }
    }
    out
}

fn grouped<K: Ord>(ways: &[Way], key: impl Fn(&Way) -> K) -> BTreeMap<K, BTreeSet<usize>> {
    let mut groups: BTreeMap<K, BTreeSet<usize>> = BTreeMap::new();
    for way in ways {
        groups.entry(key(way)).or_default().insert(way.alternative);
    }
    groups
}

/// Whether several alternatives have come to the same point, and none is anywhere alone.
fn undecided(ways: &[Way]) -> bool {
    grouped(ways, |way| (way.at, way.calls)).values().any(|alternatives| alternatives.len() > 1)
        && grouped(ways, |way| way.at).values().all(|alternatives| alternatives.len() > 1)
}
