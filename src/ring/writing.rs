//! A ring's durable writes: files at places, the one write in flight, and its completion.

// May panic: assertions 2, expectations 4.
// Why it does not: ordered 5, configured 1.

use std::io;
use std::os::fd::AsRawFd;

use super::completion::Completion;
use super::disk::{BLOCK_BYTES, BUFFER_BYTES_MAX, Disk, DiskRegistrations, DurableFile, Kept};
use super::kernel::Event;
use super::mapping::PageBytes;
use super::uring::Ring;

impl Ring {
    pub(super) fn add_disk(&mut self, files: u32, buffer_bytes: usize) -> io::Result<()> {
        assert!(self.disk.is_none(), "a ring is prepared for durable writes once");
        assert!(
            buffer_bytes.is_multiple_of(BLOCK_BYTES)
                && (BLOCK_BYTES..=BUFFER_BYTES_MAX).contains(&buffer_bytes),
            "a write buffer is a multiple of {BLOCK_BYTES} up to {BUFFER_BYTES_MAX}, not \
             {buffer_bytes}"
        );
        let buffer = PageBytes::new(buffer_bytes)?;
        let registers = self.registers_disk;
        // SAFETY: the disk of this ring owns the memory. A ring that is dropped waits for its
        // write, or leaks the memory (`Disk::leak_write`).
        let is_buffer_registered =
            registers && unsafe { self.kernel.register_write_buffer(buffer.bytes()) }.is_ok();
        let registrations = DiskRegistrations {
            files: registers && self.kernel.register_files(files).is_ok(),
            buffer: is_buffer_registered,
        };
        self.disk = Some(Box::new(Disk::new(files, buffer, registrations)));
        Ok(())
    }

    pub(super) fn replace_file(&mut self, place: u32, file: Option<DurableFile>) {
        let disk = self.disk.as_deref_mut().expect("`prepare_disk` comes before files");
        let former = disk.replace(place, None);
        let has_table = disk.registrations().files;
        if let Some(file) = file {
            // A file that the table does not take is written to by its descriptor.
            let fd = Some(file.file().as_raw_fd());
            let is_registered = has_table && self.kernel.put_file(place, fd).is_ok();
            disk.replace(place, Some(Kept { file, is_registered }));
        } else if former.as_ref().is_some_and(|former| former.is_registered) {
            // If this fails, the table keeps the file open until the place has another.
            let _ = self.kernel.put_file(place, None);
        }
        if let Some(former) = former {
            self.kernel.close(former.file.into_descriptor());
        }
    }

    pub(super) fn begin_writing(&mut self, place: u32, offset: u64, bytes: &[u8]) {
        let disk = self.disk.as_deref_mut().expect("`prepare_disk` comes before writes");
        disk.begin(place, offset, bytes);
        self.write_rest();
    }

    /// Writes the unwritten rest of the buffer.
    fn write_rest(&mut self) {
        let disk = self.disk.as_deref().expect("the caller has begun a write");
        let (token, target, rest) = disk.rest();
        // SAFETY: the disk owns the buffer, whose bytes stay as they are while the disk is writing
        // (`Disk::begin`), which it is until the last completion (`on_write`). A ring that is
        // dropped before waits for the completion or leaks the buffer. The rest lies in the buffer.
        unsafe { self.kernel.write(target, rest, token) };
    }

    pub(super) fn on_write(&mut self, event: Event, completions: &mut Vec<Completion>) {
        self.kernel.operation_ended();
        let disk = self.disk.as_deref_mut().expect("only a prepared ring writes");
        match disk.advance(event.result) {
            Some((place, result)) => completions.push(Completion::Written { place, result }),
            None => self.write_rest(),
        }
    }
}
