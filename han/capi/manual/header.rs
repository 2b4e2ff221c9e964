//! `han.h` as data: sections, functions with the comments above them, callbacks, constants.
//!
//! It reads the way the header is written, not C: a comment belongs to the declaration that follows it, a comment that
//! begins with dashes opens a section, and whatever it cannot place is an error, so that no function loses its page.

/// The whole header.
pub(crate) struct Header {
    /// The first line of its first comment.
    pub(crate) summary: String,
    /// The rest of that comment.
    pub(crate) text: String,
    pub(crate) sections: Vec<Section>,
    /// Types of functions that the program provides.
    pub(crate) callbacks: Vec<Item>,
}

/// What stands below one line of dashes.
#[derive(Default)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) functions: Vec<Item>,
    pub(crate) constants: Vec<Constants>,
}

/// A function, or the type of one.
pub(crate) struct Item {
    pub(crate) name: String,
    /// As it stands in the header.
    pub(crate) declaration: String,
    /// Its comment; empty if it has none of its own.
    pub(crate) text: String,
}

/// An enumeration.
pub(crate) struct Constants {
    pub(crate) name: String,
    /// Name and value, and the comment beside it.
    pub(crate) values: Vec<(String, String)>,
}

impl Header {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (first, rest) = comment(text.trim_start()).ok_or("it does not begin with a comment")?;
        let (summary, description) = first.split_once('\n').unwrap_or((&first, ""));
        let mut header = Self {
            summary: summary.trim_start_matches("han: ").trim_end_matches('.').to_owned(),
            text: description.trim().to_owned(),
            sections: vec![Section { title: "Types".to_owned(), ..Section::default() }],
            callbacks: Vec::new(),
        };
        let (mut rest, mut pending) = (rest.trim_start(), String::new());
        while !rest.is_empty() {
            if let Some((text, after)) = comment(rest) {
                if text.starts_with("----") {
                    header.open(&text);
                    pending.clear();
                } else {
                    pending = text;
                }
                rest = after;
            } else if let Some(after) = skipped(rest) {
                pending.clear();
                rest = after;
            } else {
                let end = end_of_declaration(rest).ok_or_else(|| format!("no end of {:?}", first_line(rest)))?;
                header.add(rest[..end].trim(), std::mem::take(&mut pending))?;
                rest = &rest[end..];
            }
            rest = rest.trim_start();
        }
        Ok(header)
    }

    fn open(&mut self, text: &str) {
        let (title, text) = text.split_once('\n').unwrap_or((text, ""));
        let title = title.trim_matches(['-', ' ']).to_owned();
        self.sections.push(Section { title, text: text.trim_matches('\n').to_owned(), ..Section::default() });
    }

    fn add(&mut self, declaration: &str, text: String) -> Result<(), String> {
        let unknown = || format!("what is {:?}?", first_line(declaration));
        let section = self.sections.last_mut().ok_or_else(unknown)?;
        if let Some(name) = between(declaration, "(*", ")") {
            let name = name.to_owned();
            self.callbacks.push(Item { name, declaration: declaration.to_owned(), text });
        } else if declaration.contains("enum ") && declaration.contains('{') {
            section.constants.push(Constants::parse(declaration).ok_or_else(unknown)?);
        } else if let Some((head, _)) = declaration.split_once('(') {
            let name = head.rsplit([' ', '*']).next().unwrap_or_default().to_owned();
            section.functions.push(Item { name, declaration: declaration.to_owned(), text });
        } else if !declaration.starts_with("typedef struct ") {
            return Err(unknown());
        }
        Ok(())
    }
}

impl Constants {
    fn parse(declaration: &str) -> Option<Self> {
        let (head, body) = declaration.split_once('{')?;
        let name = head.trim().trim_start_matches("typedef ").to_owned();
        let line = |line: &str| {
            let (value, meaning) = line.split_once("/*").unwrap_or((line, ""));
            let value = value.trim().trim_end_matches(',').to_owned();
            let meaning = meaning.trim().trim_end_matches("*/").trim().to_owned();
            (!value.is_empty()).then_some((value, meaning))
        };
        let values = body.rsplit_once('}')?.0.lines().filter_map(line).collect();
        Some(Self { name, values })
    }
}

/// The comment that `text` begins with, without its stars, and what follows it.
fn comment(text: &str) -> Option<(String, &str)> {
    let (inside, rest) = text.strip_prefix("/*")?.split_once("*/")?;
    let lines = inside.lines().enumerate().map(|(number, line)| {
        let line = line.trim_end();
        let starred = if number == 0 { None } else { line.trim_start().strip_prefix('*') };
        starred.map_or(line.trim_start(), |line| line.strip_prefix(' ').unwrap_or(line))
    });
    Some((lines.collect::<Vec<_>>().join("\n").trim_matches('\n').to_owned(), rest))
}

/// What follows a line for the preprocessor, or one that only C++ sees.
fn skipped(text: &str) -> Option<&str> {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    (line.starts_with('#') || line.starts_with("extern \"C\"") || line == "}").then_some(rest)
}

/// One past the semicolon that ends the declaration, outside braces and comments.
fn end_of_declaration(text: &str) -> Option<usize> {
    let (mut depth, mut in_comment) = (0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '/' if text[at..].starts_with("/*") => in_comment = true,
            '/' if text[..at].ends_with('*') => in_comment = false,
            '{' if !in_comment => depth += 1,
            '}' if !in_comment => depth -= 1,
            ';' if !in_comment && depth == 0 => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn between<'t>(text: &'t str, from: &str, to: &str) -> Option<&'t str> {
    text.split_once(from)?.1.split_once(to).map(|(inside, _)| inside)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_the_header_is_found_and_described() {
        let header = Header::parse(include_str!("../include/han.h")).unwrap();
        let functions: Vec<(&Section, &Item)> = header
            .sections
            .iter()
            .flat_map(|section| section.functions.iter().map(move |item| (section, item)))
            .collect();
        assert!(functions.len() >= 39, "{}", functions.len());
        for (section, function) in functions {
            assert!(!function.text.is_empty() || !section.text.is_empty(), "{} has no description", function.name);
        }
        let callbacks: Vec<&str> = header.callbacks.iter().map(|callback| callback.name.as_str()).collect();
        assert_eq!(callbacks, ["han_allgather_function", "han_op_function"]);
        let constants = header.sections.iter().flat_map(|section| &section.constants);
        let constants: Vec<(&str, usize)> = constants.map(|them| (them.name.as_str(), them.values.len())).collect();
        assert_eq!(constants, [("enum han_error", 23), ("enum han_datatype", 23)]);
        let last =
            header.sections.iter().flat_map(|section| &section.constants).next_back().unwrap().values.last().unwrap();
        assert_eq!(last.0, "HAN_RECORD_LARGEST = 5120");
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(Header::parse("/* a */ int x;").err().unwrap().contains("int x"));
        assert!(Header::parse("/* a */ int f(void)").err().unwrap().contains("int f"));
        assert!(Header::parse("int f(void);").err().unwrap().contains("comment"));
    }
}
