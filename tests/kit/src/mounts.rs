//! File systems of a story's own: of limited size, and such that fail and stall as a disk does.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Output;

use tempfile::TempDir;

use super::children::{Guard, Tied, command};
use super::runner::cannot_run;
use super::until::{PATIENCE, until};

/// Ends an ext4 file system at once, without writing its log: what was not synced is lost, as at a
/// loss of power, and all later writes fail with EIO (EXT4_IOC_SHUTDOWN, NOLOGFLUSH).
const SHUTDOWN: &str = "import fcntl, os, struct, sys; \
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";

/// A mounted file system. Dropping the value unmounts it.
pub struct Mount {
    /// Where it is mounted.
    pub path: PathBuf,
    image: Option<PathBuf>,
    is_mounted: bool,
    _guard: Guard,
    _folder: TempDir,
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted {
            // Errors mean that it is not frozen, or gone.
            let _ = output("fsfreeze", &["-u", text(&self.path)]);
            let _ = output("umount", &["-l", text(&self.path)]);
        }
    }
}

/// A file system on which writes wait.
pub struct Frozen<'a>(&'a Mount);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let thawed = output("fsfreeze", &["-u", text(&self.0.path)]);
        assert!(thawed.is_ok_and(|done| done.status.success()), "it was frozen");
    }
}

impl Mount {
    /// Mounts a tmpfs of so many MiB. The story cannot run where that is not allowed.
    pub fn tmpfs(mib: u64) -> Mount {
        let mut mount = Mount::unmounted();
        let size = format!("size={mib}m");
        mount.mount(&["-t", "tmpfs", "-o", &size, "tmpfs"]);
        mount
    }

    /// Mounts a new ext4 of so many MiB in an image file. The story cannot run where that is not
    /// allowed.
    pub fn ext4(mib: u64) -> Mount {
        let mut mount = Mount::unmounted();
        let image = mount._folder.path().join("image");
        File::create(&image).and_then(|file| file.set_len(mib << 20)).expect("room");
        allowed(output("mkfs.ext4", &["-q", "-F", text(&image)]), "mkfs.ext4");
        mount.image = Some(image);
        mount.mount_image();
        mount
    }

    fn unmounted() -> Mount {
        let folder = tempfile::Builder::new().prefix("chronos-mount-").tempdir().expect("room");
        let path = folder.path().join("disk");
        std::fs::create_dir(&path).expect("a new folder");
        let script = "fsfreeze -u \"$1\"; umount -l \"$1\"";
        let guard = Guard::with(script, &[path.as_os_str()]);
        Mount { path, image: None, is_mounted: false, _guard: guard, _folder: folder }
    }

    fn mount_image(&mut self) {
        let image = self.image.clone().expect("it has one");
        self.mount(&["-o", "loop", text(&image)]);
    }

    fn mount(&mut self, words: &[&str]) {
        let words = [words, &[text(&self.path)]].concat();
        allowed(output("mount", &words), "mount");
        self.is_mounted = true;
    }

    /// Makes the file system read-only.
    pub fn remount_read_only(&self) {
        allowed(output("mount", &["-o", "remount,ro", text(&self.path)]), "mount");
    }

    /// Writes to the file system wait until the value is dropped. Drop the value before a node that
    /// uses the file system: no process ends while a write of it waits.
    pub fn freeze(&self) -> Frozen<'_> {
        allowed(output("fsfreeze", &["-f", text(&self.path)]), "fsfreeze");
        Frozen(self)
    }

    /// The power goes: what was not synced is lost, and writes fail.
    pub fn cut_power(&self) {
        allowed(output("python3", &["-c", SHUTDOWN, text(&self.path)]), "python3");
    }

    /// The power comes back: the file system is what its disk has. No process may use it. The kernel
    /// lets go of the files of a ring a while after its process has ended. While anybody else holds
    /// on to the file system, such as a process with mounts of its own, a mount is the one that has
    /// failed once more.
    pub fn come_back(&mut self) {
        until("the file system to be back", PATIENCE, || {
            until("the file system to be free", PATIENCE, || {
                let ended = output("umount", &[text(&self.path)]).expect("it was there before");
                let told = String::from_utf8_lossy(&ended.stderr);
                assert!(ended.status.success() || told.contains("busy"), "{ended:?}");
                ended.status.success().then_some(())
            });
            self.is_mounted = false;
            self.mount_image();
            self.takes_a_file().then_some(())
        });
    }

    fn takes_a_file(&self) -> bool {
        let probe = self.path.join("probe");
        let made = File::create(&probe).and_then(|file| file.sync_all());
        made.and_then(|()| std::fs::remove_file(&probe)).is_ok()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("our paths are text")
}

fn output(program: &str, words: &[&str]) -> std::io::Result<Output> {
    command(program).args(words).output_tied()
}

/// Ends the story if the machine does not let it do this.
fn allowed(done: std::io::Result<Output>, what: &str) {
    match done {
        Ok(done) if done.status.success() => {}
        Ok(done) => cannot_run(format!(
            "not run on this machine: {what} is not allowed ({})",
            String::from_utf8_lossy(&done.stderr).trim()
        )),
        Err(error) => cannot_run(format!("not run on this machine: no {what} ({error})")),
    }
}
