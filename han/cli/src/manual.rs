//! The manual pages of section 1: one for `han` and one for each subcommand, from the same descriptions of arguments
//! that `--help` prints, so that none can be missing or out of date. `make install` calls this; users do not see it.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use han::{Config, Entry};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The date at the foot of each page
    date: String,
    /// The folder that they are written to
    folder: PathBuf,
}

/// What the variables mean that are not part of a configuration, in a line each.
const VARIABLES: [(&str, &str); 4] = [
    ("HAN_SET", "key=value,...: settings, which follow"),
    ("HAN_RENDEZVOUS", "HOST:PORT where ranks without a launcher meet, each with HAN_RANK and HAN_SIZE set"),
    ("HAN_RENDEZVOUS_TIMEOUT", "seconds that they wait there for each other, 120 by default"),
    ("HAN_SECRET_FILE", "the file with the secret that these ranks share; or HAN_SECRET, its text"),
];

pub(crate) fn main(args: &Args, command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let mut command = command.disable_help_subcommand(true);
    command.build(); // names the subcommands by their whole path
    let visible: Vec<Command> = command.get_subcommands().filter(|one| !one.is_hide_set()).cloned().collect();
    let names: Vec<String> = visible.iter().map(|one| format!("han-{}", one.get_name())).collect();

    let write = |name: &str, page: Vec<u8>| {
        let path = args.folder.join(format!("{name}.1"));
        fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
    };
    write("han", page(&command, "han", args, &names)?)?;
    for (one, name) in visible.iter().zip(&names) {
        let others: Vec<String> =
            [String::from("han")].into_iter().chain(names.iter().filter(|other| *other != name).cloned()).collect();
        write(name, page(one, name, args, &others)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, with the other pages that it points at.
fn page(command: &Command, name: &str, args: &Args, others: &[String]) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone().display_name(name)).date(&args.date).manual("han");
    let man = man.source(concat!("han ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let usage = command.clone().render_usage().to_string();
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]).text([bold(usage.trim_start_matches("Usage: "))]);
    synopsis.to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_name() == "han" {
        man.render_subcommands_section(&mut page)?;
    }

    let mut end = Roff::new();
    end.control("SH", ["ENVIRONMENT"]);
    let entries = Config::default().entries();
    let (keys, variables): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|entry| entry.variable == "HAN_SET");
    let variables = variables.into_iter().map(|entry| (entry.variable, entry.meaning));
    for (variable, meaning) in variables.chain(VARIABLES) {
        end.control("TP", []).text([bold(variable)]).text([roman(meaning)]);
    }
    end.control("SH", ["SETTINGS"]);
    for Entry { key, meaning, .. } in keys {
        end.control("TP", []).text([bold(*key)]).text([roman(*meaning)]);
    }
    end.control("SH", ["SEE ALSO"]);
    let pages = others.iter().map(|other| format!("{other}(1)")).chain([String::from("libhan(3)")]);
    end.text([roman(pages.collect::<Vec<_>>().join(", "))]);
    end.to_writer(&mut page)?;
    page.flush()?;
    Ok(page)
}
