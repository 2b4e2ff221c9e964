//! The files of `han tune`: the tuning file, and what an interrupted search has left.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use han::files::{read_text, replaceable};
use han::machine;
use han::tune::{Measured, Source, Tuning};
use nix::unistd::{AccessFlags, access};

use super::Result;

/// What an interrupted search of `out` has left.
pub(super) fn journal(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Finds what is wrong with the files before anything is measured.
pub(super) fn check(out: &Path, resumes: bool) -> Result<()> {
    let file = replaceable(out).map_err(|e| format!("--out {}: {e}", out.display()))?;
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    access(folder, AccessFlags::W_OK)
        .map_err(|e| format!("--out {}: cannot write in {}: {}", out.display(), folder.display(), e.desc()))?;
    let journal = journal(out);
    replaceable(&journal).map_err(|e| format!("{}: {e}", journal.display()))?;
    // The ranks of one job may be here at once.
    if File::open(&journal).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))) {
        return goes_on(&journal);
    }
    // One with its head alone is of a search that has not measured anything.
    let is_left = journal.exists() && !read_text(&journal).is_ok_and(|text| text.lines().count() <= 2);
    if is_left && !resumes {
        let name = journal.display();
        return Err(
            format!("{name} is left of a search that was interrupted: --resume goes on with it; or remove it").into()
        );
    }
    known(out).map(|_| ())
}

/// What the file has, of this machine; it may be written.
fn known(out: &Path) -> Result<Tuning> {
    let own = machine::in_words();
    let Ok(found) = fs::metadata(out) else { return Ok(Tuning { machine: own, ..Tuning::default() }) };
    // Whatever root may do, and whoever may replace files in their folder.
    if found.permissions().readonly() || access(out, AccessFlags::W_OK).is_err() {
        return Err(format!("{} is read-only: give another --out", out.display()).into());
    }
    let tuning = Source::read(out)?.tuning;
    if tuning.machine != own {
        let name = out.display();
        return Err(format!(
            "{name} is of another machine, {:?}, and this is {own:?}: give another --out",
            tuning.machine
        )
        .into());
    }
    Ok(tuning)
}

/// Puts `measured` into the file, all at once.
pub(super) fn write(out: &Path, measured: Measured) -> Result<()> {
    let mut tuning = known(out)?;
    tuning.put(measured);
    let out = replaceable(out)?;
    let mut next = out.as_os_str().to_owned();
    next.push(".next");
    let before = fs::metadata(&out).ok();
    let as_before = |found: Metadata| {
        // Who may not give it to its owner leaves it readable, as any new file is.
        let is_given = chown(&next, Some(found.uid()), Some(found.gid())).is_ok();
        if is_given { fs::set_permissions(&next, found.permissions()) } else { Ok(()) }
    };
    let written = fs::write(&next, tuning.to_text())
        .and_then(|()| before.map_or(Ok(()), as_before))
        .and_then(|()| fs::rename(&next, out));
    written.map_err(|e| format!("{}: {e}", Path::new(&next).display()).into())
}

/// Opens the journal of a search to append to it; nobody else can as long as it is open, where the file system has locks.
pub(super) fn open(journal: &Path) -> Result<File> {
    let opened = OpenOptions::new().create(true).read(true).append(true).open(journal);
    let file = opened.map_err(|e| format!("{}: {e}", journal.display()))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => goes_on(journal),
        // Some parallel file systems have no locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

fn goes_on<T>(journal: &Path) -> Result<T> {
    let name = journal.display();
    Err(format!("{name} is that of a search which goes on now: give another --out, or wait for its end").into())
}

/// Today, in UTC.
pub(super) fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date_of(i64::try_from(seconds / 86_400).unwrap_or(0))
}

/// The date of a day since 1970-01-01: years of the calendar begin in March, so that leap days come last.
fn date_of(days: i64) -> String {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn days_have_dates() {
        for (days, date) in [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_776, "2026-11-19")] {
            assert_eq!(date_of(days), date);
        }
    }

    #[test]
    fn other_shapes_stay_and_other_machines_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("tuning.toml");
        let measured = |nodes| Measured {
            nodes,
            ranks_per_node: 2,
            provider: "tcp".to_owned(),
            set: String::new(),
            date: date(),
            method: "task".to_owned(),
            points: Vec::new(),
        };
        for nodes in [4, 2, 4] {
            write(&out, measured(nodes)).unwrap();
        }
        let shapes: Vec<usize> = Source::read(&out).unwrap().tuning.shapes.iter().map(|shape| shape.nodes).collect();
        assert_eq!(shapes, [2, 4]);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("tuning.toml", &link).unwrap();
        write(&link, measured(8)).unwrap();
        assert!(link.is_symlink() && Source::read(&out).unwrap().tuning.shapes.len() == 3);
        assert!(check(folder.path(), false).unwrap_err().to_string().ends_with(": it is no regular file"));
        check(&out, false).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(&out, Permissions::from_mode(0o660)).unwrap();
        write(&link, measured(8)).unwrap();
        assert_eq!(mode(&out), 0o660, "who else may write stays so");
        fs::set_permissions(&out, Permissions::from_mode(0o444)).unwrap();
        for error in [check(&out, false), write(&link, measured(8))].map(|refused| refused.unwrap_err().to_string()) {
            assert!(error.ends_with(" is read-only: give another --out"), "{error}");
        }
        fs::set_permissions(&out, Permissions::from_mode(0o660)).unwrap();
        mkfifo(&journal(&out), Mode::S_IRWXU).unwrap();
        assert!(check(&out, true).unwrap_err().to_string().ends_with(".partial: it is no regular file"));
        fs::remove_file(journal(&out)).unwrap();
        let mut left = open(&journal(&out)).unwrap();
        left.write_all(b"a title\na search\n").unwrap();
        for other in [check(&out, false), check(&out, true), open(&journal(&out)).map(drop)] {
            let error = other.unwrap_err().to_string();
            assert!(error.contains("tuning.toml.partial is that of a search which goes on now"), "{error}");
        }
        drop(left);
        check(&out, false).unwrap();
        open(&journal(&out)).unwrap().write_all(b"a line\n").unwrap();
        assert!(check(&out, false).unwrap_err().to_string().contains("--resume"));
        check(&out, true).unwrap();
        let text = fs::read_to_string(&out).unwrap().replace(&machine::in_words(), "another");
        fs::write(&out, text).unwrap();
        assert!(check(&out, true).unwrap_err().to_string().contains("another machine, \"another\""));
    }
}
