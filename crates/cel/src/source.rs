//! Positions in an expression and the problems found there.

use std::fmt;

/// One problem, at a place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Offset in code points from the start of the expression.
    pub offset: u32,
    /// Line, counted from one.
    pub line: u32,
    /// Column in code points, counted from one.
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
}

/// More problems than this are not reported, only counted.
const MAX_ISSUES: usize = 100;
/// Source lines longer than this (in code points) are shown without their text.
const MAX_SNIPPET: usize = 1024;

impl CompileErrors {
    /// Places `problems` (offset, message) in `source`.
    pub(crate) fn new(source: &str, mut problems: Vec<(u32, String)>) -> Self {
        problems.sort_by_key(|(offset, _)| *offset);
        let dropped = problems.len().saturating_sub(MAX_ISSUES);
        problems.truncate(MAX_ISSUES);
        let mut issues: Vec<Issue> =
            problems.into_iter().map(|(offset, message)| locate(source, offset, message)).collect();
        if dropped > 0 {
            issues.push(locate(source, 0, format!("{dropped} more errors not shown")));
        }
        Self { source: source.to_owned(), issues }
    }

    /// The problems, in the order of the source.
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

fn locate(source: &str, offset: u32, message: String) -> Issue {
    let (mut line, mut column) = (1, 1);
    for c in source.chars().take(offset as usize) {
        if c == '\n' {
            line += 1;
            column = 1;
        } else {
            column += 1;
        }
    }
    Issue { offset, line, column, message }
}

impl fmt::Display for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, issue) in self.issues.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "ERROR: <input>:{}:{}: {}", issue.line, issue.column, issue.message)?;
            let text = self.source.split('\n').nth(issue.line as usize - 1).unwrap_or("");
            if text.chars().nth(MAX_SNIPPET).is_none() {
                let dots = ".".repeat(issue.column as usize - 1);
                write!(f, "\n | {text}\n | {dots}^")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for CompileErrors {}
