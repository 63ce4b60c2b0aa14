//! A wall clock that is wrong for one process, with the library of Debian's package `faketime`.

use std::path::{Path, PathBuf};

/// A wall clock that a story sets. The monotonic clock is left alone.
#[derive(Debug)]
pub struct WrongClock {
    library: PathBuf,
    /// What the library reads with each reading of the clock.
    file: PathBuf,
}

impl WrongClock {
    /// Makes a clock that is right, by a file of this name. Returns `None` where the library is not
    /// installed.
    pub fn right(file: &Path) -> Option<WrongClock> {
        let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let mut found = folders
            .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
            .filter(|path| path.exists());
        let clock = WrongClock { library: found.next()?, file: file.to_owned() };
        clock.set("+0");
        Some(clock)
    }

    /// Sets the clock wrong by so much: `+3600`, `-1h`, `+400d`; `+0` sets it right.
    pub fn set(&self, by: &str) {
        // The file is replaced as a whole, because a process may read it meanwhile.
        let aside = self.file.with_extension("aside");
        std::fs::write(&aside, format!("{by}\n")).expect("a file in the story's folder");
        std::fs::rename(&aside, &self.file).expect("a file in the story's folder");
    }

    /// Returns the environment of a process that has this clock.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
        vec![
            ("LD_PRELOAD", text(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.file)),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}
