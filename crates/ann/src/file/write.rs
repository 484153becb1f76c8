//! Writing an index to its file.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::codes::Codes;
use crate::error::AnnError;
use crate::file::head::{Head, Kind, PAGE, ROOM, Section, Shape, page_sum};
use crate::index::{Index, NOBODY};
use crate::links::{self, Links};
use crate::order::together;
use crate::tier::fast::{Fast, Towers};
use crate::tier::settings::{Settings, Trial};
use crate::tier::{FastMemory, Slow, left};

/// What goes into a file beside the index itself.
#[derive(Clone, Debug)]
pub struct SaveOptions {
    /// Bits a number of the codes from which searches with little memory estimate distances: 1, 2, 4 or 8; 0 for none.
    pub code_bits: u32,
    /// Threads that make the codes.
    pub threads: usize,
    /// The fast memory that searches will have; all where absent.
    pub fast: Option<FastMemory>,
    /// Where other vectors will be.
    pub slow: Slow,
}

impl Default for SaveOptions {
    fn default() -> SaveOptions {
        SaveOptions { code_bits: 1, threads: 1, fast: None, slow: Slow::default() }
    }
}

impl Index {
    /// Writes the index to a file, whole or not at all: whoever opens the path finds what was there before, or this.
    ///
    /// Removed vectors are taken out of the graph for good first.
    pub fn save(&mut self, path: &Path, options: &SaveOptions) -> Result<(), AnnError> {
        self.compact(options.threads);
        if options.code_bits != 0 && !crate::codes::WIDTHS.contains(&options.code_bits) {
            let found = u64::from(options.code_bits);
            return Err(AnnError::Parameter { what: "bits of a code", found, low: 1, high: 8 });
        }
        links::check(self.graph.cap(0))?;
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let (file, aside) = aside(path).map_err(AnnError::file(path))?;
        let written = self.write(file, options).and_then(|()| {
            fs::rename(&aside, path)?;
            // The name is there after a crash once its folder is.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        });
        if written.is_err() {
            // It may not have come to be.
            let _ = fs::remove_file(&aside);
        }
        written.map_err(AnnError::file(path))
    }

    fn write(&self, file: File, options: &SaveOptions) -> io::Result<()> {
        let shape = Shape::of(&self.spec);
        let there = |row: u32| self.labels[row as usize] != NOBODY;
        let order = together(&self.graph, shape.each.max(8), there);
        let mut place = vec![u32::MAX; self.graph.nodes()];
        order.iter().enumerate().for_each(|(new, old)| place[*old as usize] = new as u32);
        let mut out = Writer::new(file)?;
        let count = |old: &u32| self.graph.links(*old, 0).len();
        let packed = Links::pack(order.iter().map(count), order.len(), |new, list| {
            list.extend(self.graph.links(order[new], 0).iter().map(|old| place[*old as usize]));
        })?;
        let [counts, bits] = packed.parts();
        out.section(Kind::Counts, counts)?;
        out.section(Kind::Links, bits)?;
        let towers = self.towers(&order, &place);
        out.section(Kind::Towers, &spelled(&order, &towers))?;
        let entry = self.graph.entry().map_or(0, |entry| place[entry as usize]);
        if options.code_bits > 0 && !order.is_empty() {
            let made = Codes::make(&self.rows, &order, options.code_bits, self.spec.seed, options.threads);
            let codes = made.map_err(|error| io::Error::other(error.to_string()))?;
            let (shared, bytes) = codes.write();
            out.section(Kind::Coder, &shared)?;
            out.section(Kind::Codes, bytes)?;
            let mut fast = Fast::of(packed, codes, towers, entry);
            if let Some(memory) = options.fast {
                // Settings are measured with the links that a search has which is given that much memory.
                let room =
                    left(&self.spec, order.len(), memory.of(&self.spec, order.len() as u64), options.threads);
                // Where not even short lists fit, whoever opens the file is told so.
                let _ = fast.shorten(room)?;
            }
            let settings =
                Settings::measure(self, &Trial { fast: &fast, order: &order, shape }, options.threads);
            out.section(Kind::Settings, &settings.write())?;
        }
        let labels = order.iter().flat_map(|row| self.labels[*row as usize].to_le_bytes());
        out.section(Kind::Labels, &labels.collect::<Vec<u8>>())?;
        out.section(Kind::Slow, options.slow.to_string().as_bytes())?;
        out.pages(&order, shape, |row, record| {
            let (vector, label) = record.split_at_mut(shape.vector);
            vector.copy_from_slice(&self.rows.get(row).0[..shape.vector]);
            label.copy_from_slice(&self.labels[row as usize].to_le_bytes());
        })?;
        out.finish(Head {
            spec: self.spec,
            nodes: order.len() as u64,
            entry,
            arrivals: self.arrivals,
            ef: self.ef as u32,
            fast: options.fast.map_or(0, |fast| fast.of(&self.spec, order.len() as u64).0),
            sections: Vec::new(),
        })
    }

    /// The lists above level 0 by the nodes' places.
    fn towers(&self, order: &[u32], place: &[u32]) -> Towers {
        let lists = |old: u32| {
            let list =
                |level| self.graph.links(old, level).iter().map(|link| place[*link as usize]).collect();
            (1..=self.graph.level(old)).map(list).collect()
        };
        let high = order.iter().enumerate().filter(|(_, old)| self.graph.level(**old) > 0);
        high.map(|(new, old)| (new as u32, lists(*old))).collect()
    }
}

/// For every node above level 0: the node, its levels, and each list with its length.
fn spelled(order: &[u32], towers: &Towers) -> Vec<u8> {
    let mut words = Vec::new();
    for node in 0..order.len() as u32 {
        let Some(lists) = towers.get(&node) else { continue };
        words.extend([node, lists.len() as u32]);
        for list in lists {
            words.push(list.len() as u32);
            words.extend(list);
        }
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// A file that is being written, section by section.
struct Writer {
    out: BufWriter<File>,
    at: u64,
    sections: Vec<Section>,
}

impl Writer {
    fn new(file: File) -> io::Result<Writer> {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        // The first page is written last.
        out.write_all(&[0; PAGE])?;
        Ok(Writer { out, at: PAGE as u64, sections: Vec::new() })
    }

    fn section(&mut self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(PAGE) - bytes.len();
        self.out.write_all(&[0; PAGE][..padding])?;
        let len = bytes.len() as u64;
        self.sections.push(Section { kind, sum: crc32fast::hash(bytes), start: self.at, len });
        self.at += len + padding as u64;
        Ok(())
    }

    fn pages(&mut self, order: &[u32], shape: Shape, fill: impl Fn(u32, &mut [u8])) -> io::Result<()> {
        let start = self.at;
        let mut record = vec![0; shape.vector + 8];
        let mut group = Vec::new();
        let mut page = 0u64;
        for rows in order.chunks(shape.each) {
            group.clear();
            for row in rows {
                fill(*row, &mut record);
                group.extend_from_slice(&record);
            }
            group.resize(shape.pages * ROOM, 0);
            for room in group.chunks_exact(ROOM) {
                self.out.write_all(room)?;
                self.out.write_all(&page_sum(page, room).to_le_bytes())?;
                page += 1;
            }
        }
        self.at += page * PAGE as u64;
        self.sections.push(Section { kind: Kind::Pages, sum: 0, start, len: page * PAGE as u64 });
        Ok(())
    }

    fn finish(mut self, head: Head) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&Head { sections: self.sections, ..head }.write())?;
        self.out.flush()?;
        self.out.get_ref().sync_all()
    }
}

/// A file beside a path, under a name of its own, which is locked as long as it is written to.
fn aside(path: &Path) -> io::Result<(File, PathBuf)> {
    static SAVINGS: AtomicU64 = AtomicU64::new(0);
    clear(path);
    loop {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        let saving = SAVINGS.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".{}-{saving}.part", std::process::id()));
        let aside = path.with_file_name(name);
        let file = File::create(&aside)?;
        // Where files cannot be locked nobody clears them either.
        let _ = file.try_lock();
        // Somebody who clears may have come before the lock.
        if file.metadata()?.nlink() > 0 {
            return Ok((file, aside));
        }
    }
}

/// Removes what programs left behind that were killed while they saved to this path: files that nobody has locked.
fn clear(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let part = |file: &OsStr| {
        let rest =
            file.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b".")?.strip_suffix(b".part")?;
        rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-').then_some(())
    };
    // What cannot be read or removed stays: it is in nobody's way.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if part(&entry.file_name()).is_some()
            && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}
