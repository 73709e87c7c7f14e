//! Positions in an expression and the problems found there.

use std::fmt;

use crate::lexer::NOWHERE;

/// One problem, at a place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Offset in code points from the start of the expression; `None` if it is about the whole.
    pub offset: Option<u32>,
    /// Line, counted from one; -1 if it is about the whole.
    pub line: i32,
    /// Column in code points, counted from one; 0 if it is about the whole, or the source is empty.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

/// Why an expression was refused. `Display` shows each problem with its line and a caret:
///
/// ```text
/// ERROR: <input>:1:1: undeclared reference to 'x' (in container '')
///  | x + 1
///  | ^
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileErrors {
    source: String,
    issues: Vec<Issue>,
    /// Whether it could be checked, but a constant in it cannot be computed.
    impossible: bool,
}

/// More problems than this are not reported, only counted.
const MAX_ISSUES: usize = 100;
/// Source lines longer than this (in bytes) are shown without their text.
const MAX_SNIPPET: usize = 16_384;

impl CompileErrors {
    /// Places `problems` (offset, message) in `source`.
    pub(crate) fn new(source: &str, mut problems: Vec<(u32, String)>) -> Self {
        problems.sort_by_key(|(offset, _)| if *offset == NOWHERE { 0 } else { offset + 1 });
        let dropped = problems.len().saturating_sub(MAX_ISSUES);
        problems.truncate(MAX_ISSUES);
        let mut issues: Vec<Issue> =
            problems.into_iter().map(|(offset, message)| locate(source, offset, message)).collect();
        if dropped > 0 {
            issues.push(locate(source, NOWHERE, format!("{dropped} more errors not shown")));
        }
        Self { source: source.to_owned(), issues, impossible: false }
    }

    /// A constant that cannot be computed.
    pub(crate) fn impossible(source: &str, why: String) -> Self {
        Self { source: source.to_owned(), issues: vec![locate(source, NOWHERE, why)], impossible: true }
    }

    /// What failed, as Kubernetes calls it: `compilation`, or `program instantiation` for constants that cannot be computed.
    pub fn stage(&self) -> &'static str {
        if self.impossible { "program instantiation" } else { "compilation" }
    }

    /// The problems, in the order of the source.
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

fn locate(source: &str, offset: u32, message: String) -> Issue {
    if offset == NOWHERE {
        return Issue { offset: None, line: -1, column: 0, message };
    }
    // In an empty source there is no first column.
    let (mut line, mut column) = (1, u32::from(!source.is_empty()));
    for c in source.chars().take(offset as usize) {
        if c == '\n' {
            line += 1;
            column = 1;
        } else {
            column += 1;
        }
    }
    Issue { offset: Some(offset), line, column, message }
}

impl fmt::Display for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, issue) in self.issues.iter().enumerate() {
            if self.impossible {
                return f.write_str(&issue.message);
            }
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "ERROR: <input>:{}:{}: {}", issue.line, issue.column, issue.message)?;
            let (Ok(line), 1..) = (usize::try_from(issue.line - 1), issue.column) else { continue };
            let text = self.source.split('\n').nth(line).unwrap_or("").replace('\t', " ");
            if text.len() <= MAX_SNIPPET {
                // Under a character of more than one byte stands a wide sign.
                let width =
                    |c: char, narrow: &'static str, wide: &'static str| if c.len_utf8() > 1 { wide } else { narrow };
                let before = issue.column as usize - 1;
                let dots: String = text.chars().take(before).map(|c| width(c, ".", "\u{ff0e}")).collect();
                let caret = text.chars().nth(before).map_or("^", |c| width(c, "^", "\u{ff3e}"));
                write!(f, "\n | {text}\n | {dots}{caret}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for CompileErrors {}
