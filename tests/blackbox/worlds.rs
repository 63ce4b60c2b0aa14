//! What a run has besides plain timers.

/// One such thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    Journal,
    Tls,
    Names,
    Cron,
    Actions,
    Letters,
    Rules,
    Jobs,
    Disk,
    Clocks,
}

const ALL: [(&str, World); 10] = [
    ("journal", World::Journal),
    ("tls", World::Tls),
    ("names", World::Names),
    ("cron", World::Cron),
    ("actions", World::Actions),
    ("letters", World::Letters),
    ("rules", World::Rules),
    ("jobs", World::Jobs),
    ("disk", World::Disk),
    ("clocks", World::Clocks),
];

/// The things that a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worlds(u16);

impl Default for Worlds {
    fn default() -> Worlds {
        Worlds::all().without(World::Disk)
    }
}

impl Worlds {
    fn all() -> Worlds {
        ALL.iter().fold(Worlds(0), |worlds, (_, world)| worlds.with(*world))
    }

    fn with(self, world: World) -> Worlds {
        Worlds(self.0 | 1 << world as u16)
    }

    /// Returns the others of these things.
    pub fn without(self, world: World) -> Worlds {
        Worlds(self.0 & !(1 << world as u16))
    }

    /// Reports whether the run has it.
    pub fn has(self, world: World) -> bool {
        self.0 & 1 << world as u16 != 0
    }

    /// Reads a list of names.
    ///
    /// # Errors
    ///
    /// A sentence, if a name is unknown.
    pub fn read(list: &str) -> Result<Worlds, String> {
        match list {
            "all" => return Ok(Worlds::all()),
            "none" => return Ok(Worlds(0)),
            _ => {}
        }
        list.split(',').try_fold(Worlds(0), |worlds, name| {
            let known = ALL.iter().find(|(known, _)| *known == name);
            let (_, world) =
                known.ok_or_else(|| format!("--with: {name:?} is none of the list"))?;
            Ok(worlds.with(*world))
        })
    }
}
