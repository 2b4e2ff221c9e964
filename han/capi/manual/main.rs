//! Writes the manual pages of the C interface: `han-manual HEADER DATE FOLDER` reads `han.h`, whose comments are the
//! documentation, and writes a page for each function and `libhan.3`, which has what holds for all of them.
//!
//! [`header`] takes the header apart, [`roff`] knows how text becomes a page's source.

mod header;
mod roff;

use header::{Header, Item, Section};
use roff::Page;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

const OVERVIEW: &str = "libhan";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [header, date, folder] = arguments.as_slice() else {
        eprintln!("usage: han-manual HEADER DATE FOLDER");
        return ExitCode::FAILURE;
    };
    match write_all(header, date, Path::new(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("han-manual: {message}");
            ExitCode::FAILURE
        }
    }
}

fn write_all(header: &str, date: &str, folder: &Path) -> Result<(), String> {
    let text = fs::read_to_string(header).map_err(|error| format!("{header}: {error}"))?;
    let header = Header::parse(&text).map_err(|what| format!("{header}: {what}"))?;
    let mut pages = vec![(OVERVIEW.to_owned(), overview(&header, date))];
    for section in &header.sections {
        for function in &section.functions {
            pages.push((function.name.clone(), function_page(&header, section, function, date)));
        }
    }
    for (name, text) in pages {
        let path = folder.join(format!("{name}.3"));
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// What holds for all functions, the constants, and where to find what.
fn overview(header: &Header, date: &str) -> String {
    let mut page = Page::new(OVERVIEW, date, &header.summary);
    page.section("Synopsis").code("#include <han.h>\n\ncc PROGRAM.c $(pkg-config --cflags --libs han)");
    page.section("Description").text(&header.text);
    for section in &header.sections {
        if section.functions.iter().all(|function| !function.text.is_empty()) && !section.text.is_empty() {
            page.section(&section.title).text(&section.text);
        }
        for constants in &section.constants {
            page.section(&format!("Constants of {}", constants.name));
            for (name, meaning) in &constants.values {
                page.term(name, meaning);
            }
        }
    }
    page.section("Functions");
    for section in header.sections.iter().filter(|section| !section.functions.is_empty()) {
        page.subsection(&section.title);
        page.references(section.functions.iter().map(|function| (function.name.as_str(), 3)));
    }
    page.section("See also").references([("han", 1), ("han-run", 1)].into_iter());
    page.end()
}

fn function_page(header: &Header, section: &Section, function: &Item, date: &str) -> String {
    // Functions of a group without a comment of their own are described by their section's.
    let own = !function.text.is_empty();
    let text = if own { &function.text } else { &section.text };
    let summary = if own { first_sentence(text) } else { section.title.to_lowercase() };
    let callbacks: Vec<&Item> =
        header.callbacks.iter().filter(|callback| function.declaration.contains(&callback.name)).collect();

    let mut page = Page::new(&function.name, date, &summary);
    let mut synopsis = "#include <han.h>\n\n".to_owned();
    callbacks.iter().for_each(|callback| synopsis += &format!("{}\n\n", callback.declaration));
    page.section("Synopsis").code(&(synopsis + &function.declaration));
    page.section("Description").text(text);
    for callback in callbacks {
        page.subsection(&callback.name).text(&callback.text);
    }
    if function.declaration.starts_with("int ") && function.name != "han_abort" {
        page.section("Return value").text(
            "HAN_SUCCESS, which is 0, or a code of `enum han_error`;\nlibhan(3) lists them.\n\
             Then han_last_error_message() gives the full sentence.",
        );
    }
    let others = section.functions.iter().filter(|other| other.name != function.name);
    let names = others.map(|other| other.name.as_str()).chain([OVERVIEW]);
    page.section("See also").references(names.map(|name| (name, 3)));
    page.end()
}

/// Up to the first full stop, colon or semicolon, as the line that `apropos` prints.
fn first_sentence(text: &str) -> String {
    let line = text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ");
    let is_stop = |(at, letter): &(usize, char)| {
        let (before, after) = (&line[..*at], &line[at + 1..]);
        matches!(letter, '.' | ':' | ';')
            && !before.ends_with([' ', '.'])
            && (after.is_empty() || after.starts_with(' '))
    };
    let end = line.char_indices().find(is_stop).map_or(line.len(), |(at, _)| at);
    let sentence = &line[..end];
    let mut letters = sentence.chars();
    match (letters.next(), sentence.chars().nth(1)) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => sentence.to_owned(),
    }
}
