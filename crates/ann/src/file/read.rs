//! Reading an index file: what it says of itself, its sections, or all of it into memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::arena::Arena;
use crate::codes::Codes;
use crate::error::AnnError;
use crate::file::head::{Head, Kind, PAGE, ROOM, Section, page_sum};
use crate::graph::TOP;
use crate::index::{Index, NOBODY};
use crate::links::Links;
use crate::tier::Slow;
use crate::tier::fast::{Fast, Towers};
use crate::tier::settings::Settings;

/// How many pages are read at a time where all are.
const STRIDE: u64 = 256;

/// An index file whose first page is known to be good.
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) head: Head,
    pub(crate) len: u64,
}

impl Opened {
    /// Opens a file and reads its first page.
    pub(crate) fn open(path: &Path) -> Result<Opened, AnnError> {
        let file = File::open(path).map_err(AnnError::file(path))?;
        let len = file.metadata().map_err(AnnError::file(path))?.len();
        let mut page = vec![0; PAGE.min(len as usize)];
        file.read_exact_at(&mut page, 0).map_err(AnnError::file(path))?;
        let head = Head::read(path, &page, len)?;
        let opened = Opened { file, path: path.to_path_buf(), head, len };
        let pages = opened.head.section(path, Kind::Pages)?;
        let wanted = opened.head.shape().total(opened.head.nodes) * PAGE as u64;
        if pages.len != wanted || pages.start % PAGE as u64 != 0 {
            return Err(opened.wrong("its pages are not as many as its vectors need"));
        }
        Ok(opened)
    }

    /// Something is wrong with it.
    pub(crate) fn wrong(&self, what: &str) -> AnnError {
        AnnError::damaged(&self.path, what)
    }

    /// How many vectors there are.
    pub(crate) fn nodes(&self) -> usize {
        self.head.nodes as usize
    }

    /// The pages of vectors.
    pub(crate) fn pages(&self) -> Result<Section, AnnError> {
        self.head.section(&self.path, Kind::Pages)
    }

    /// A section, known to be as it was written.
    fn section(&self, kind: Kind) -> Result<Arena, AnnError> {
        let section = self.head.section(&self.path, kind)?;
        let mut bytes = Arena::zeroed(section.len as usize).map_err(AnnError::file(&self.path))?;
        self.file.read_exact_at(&mut bytes, section.start).map_err(AnnError::file(&self.path))?;
        if crc32fast::hash(&bytes) != section.sum {
            return Err(self.wrong(&format!("its {kind:?} are damaged")));
        }
        Ok(bytes)
    }

    /// The links of level 0.
    pub(crate) fn links(&self) -> Result<Links, AnnError> {
        let (counts, bits) = (self.section(Kind::Counts)?, self.section(Kind::Links)?);
        let most = 2 * self.head.spec.m;
        let links = Links::from_parts(self.nodes(), counts, bits);
        let links = links.filter(|links| (0..self.nodes() as u32).all(|node| links.count(node) <= most));
        links.ok_or_else(|| self.wrong("its Links lead nowhere"))
    }

    /// The lists above level 0.
    pub(crate) fn towers(&self) -> Result<Towers, AnnError> {
        let bytes = self.section(Kind::Towers)?;
        let wrong = || self.wrong("its Towers lead nowhere");
        let mut words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut next = || words.next().ok_or_else(wrong);
        let mut towers = Towers::default();
        let mut left = bytes.len() / 4;
        let nodes = self.nodes() as u32;
        while left > 0 {
            let (node, levels) = (next()?, next()? as usize);
            if node >= nodes || levels == 0 || levels > TOP || towers.contains_key(&node) {
                return Err(wrong());
            }
            left -= 2;
            let mut lists = Vec::new();
            for _ in 0..levels {
                let count = next()? as usize;
                if count > self.head.spec.m || count >= left {
                    return Err(wrong());
                }
                let list: Vec<u32> = (0..count).map(|_| next()).collect::<Result<_, _>>()?;
                left -= 1 + count;
                lists.push(list);
            }
            towers.insert(node, lists);
        }
        let level = |node: u32| towers.get(&node).map_or(0, Vec::len);
        let reach = |(at, list): (usize, &Vec<u32>)| list.iter().all(|link| level(*link) > at);
        let good = towers.values().all(|lists| lists.iter().enumerate().all(reach));
        if good { Ok(towers) } else { Err(wrong()) }
    }

    /// The codes, where it has some.
    pub(crate) fn codes(&self) -> Result<Option<Codes>, AnnError> {
        if self.head.try_section(Kind::Codes).is_none() {
            return Ok(None);
        }
        let shared = self.section(Kind::Coder)?;
        let codes = |_| self.section(Kind::Codes);
        Codes::read(self.head.spec.intake(), self.nodes(), &shared, codes).map(Some)
    }

    /// Which settings reach which recall.
    pub(crate) fn settings(&self) -> Result<Settings, AnnError> {
        match self.head.try_section(Kind::Settings) {
            None => Ok(Settings::default()),
            Some(_) => Settings::read(&self.section(Kind::Settings)?)
                .ok_or_else(|| self.wrong("its Settings are damaged")),
        }
    }

    /// Where vectors are that are not in fast memory.
    pub(crate) fn slow(&self) -> Result<Slow, AnnError> {
        if self.head.try_section(Kind::Slow).is_none() {
            return Ok(Slow::default());
        }
        let bytes = self.section(Kind::Slow)?;
        let text = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
        text.ok_or_else(|| self.wrong("its slow tier makes no sense"))
    }

    /// What searches with little memory keep; `None` where the file has no codes.
    pub(crate) fn fast(&self) -> Result<Option<Fast>, AnnError> {
        let Some(codes) = self.codes()? else { return Ok(None) };
        Ok(Some(Fast { links: self.links()?, codes, towers: self.towers()?, entry: self.head.entry }))
    }

    /// Every label, in order; an error at the end means that none of them counts.
    pub(crate) fn each_label(&self, mut take: impl FnMut(u32, u64)) -> Result<(), AnnError> {
        let Some(section) = self.head.try_section(Kind::Labels) else {
            return self.each(|node, _, label| take(node, label));
        };
        if section.len != self.head.nodes * 8 {
            return Err(self.wrong("it has not a label a vector"));
        }
        let (mut sum, mut node) = (crc32fast::Hasher::new(), 0);
        let mut block = vec![0; STRIDE as usize * PAGE];
        for start in (0..section.len).step_by(block.len()) {
            let bytes = &mut block[..(section.len - start).min(STRIDE * PAGE as u64) as usize];
            self.file.read_exact_at(bytes, section.start + start).map_err(AnnError::file(&self.path))?;
            sum.update(bytes);
            for label in bytes.as_chunks::<8>().0 {
                take(node, u64::from_le_bytes(*label));
                node += 1;
            }
        }
        if sum.finalize() == section.sum { Ok(()) } else { Err(self.wrong("its Labels are damaged")) }
    }

    /// The vector's bytes and label of one node.
    pub(crate) fn one(&self, node: u32, vector: &mut [u8]) -> Result<u64, AnnError> {
        let shape = self.head.shape();
        let (start, first) = (self.pages()?.start, shape.page(node));
        let mut pages = vec![0; shape.pages * PAGE];
        self.file
            .read_exact_at(&mut pages, start + first * PAGE as u64)
            .map_err(AnnError::file(&self.path))?;
        check(first, &pages)?;
        Ok(shape.take(node, &pages, vector))
    }

    /// Every vector's bytes and label, in order, past the system's cache where that is possible.
    pub(crate) fn each(&self, mut take: impl FnMut(u32, &[u8], u64)) -> Result<(), AnnError> {
        let shape = self.head.shape();
        let total = shape.total(self.head.nodes);
        let stride = STRIDE.next_multiple_of(shape.pages as u64);
        let start = self.pages()?.start;
        let mut pages = Arena::zeroed((stride as usize).min(total as usize) * PAGE)
            .map_err(AnnError::file(&self.path))?;
        let mut vector = vec![0; shape.vector];
        let mut node = 0u32;
        for first in (0..total).step_by(stride as usize) {
            let count = stride.min(total - first);
            let bytes = &mut pages[..count as usize * PAGE];
            self.file
                .read_exact_at(bytes, start + first * PAGE as u64)
                .map_err(AnnError::file(&self.path))?;
            check(first, bytes)?;
            let here = count / shape.pages as u64 * shape.each as u64;
            for _ in 0..here.min(self.head.nodes - u64::from(node)) {
                let at = (shape.page(node) - first) as usize * PAGE;
                let label = shape.take(node, &bytes[at..], &mut vector);
                take(node, &vector, label);
                node += 1;
            }
        }
        Ok(())
    }
}

/// Whether pages that were read are those that were written.
pub(crate) fn check(first: u64, pages: &[u8]) -> Result<(), AnnError> {
    for (at, page) in pages.chunks_exact(PAGE).enumerate() {
        let found = page_sum(first + at as u64, &page[..ROOM]);
        let wanted = u32::from_le_bytes([page[ROOM], page[ROOM + 1], page[ROOM + 2], page[ROOM + 3]]);
        if found != wanted {
            return Err(AnnError::Page { page: first + at as u64, found, wanted });
        }
    }
    Ok(())
}

impl Index {
    /// Reads all of an index into memory, ready to be searched and changed.
    pub fn load(path: &Path) -> Result<Index, AnnError> {
        Opened::open(path)?.load()
    }
}

impl Opened {
    /// All of it in memory.
    pub(crate) fn load(&self) -> Result<Index, AnnError> {
        let opened = self;
        let nodes = opened.nodes();
        let mut index = Index::new(opened.head.spec)?;
        let memory = |error: io::Error| AnnError::File { path: opened.path.clone(), source: error };
        let (links, towers) = (opened.links()?, opened.towers()?);
        index.rows.resize(nodes).map_err(memory)?;
        index.graph.resize(nodes).map_err(memory)?;
        let mut list = Vec::new();
        for node in 0..nodes as u32 {
            list.clear();
            list.extend(links.of(node));
            index.graph.set(node, 0, &list);
        }
        for (node, lists) in &towers {
            index.graph.raise(*node, lists.len());
            lists.iter().enumerate().for_each(|(level, list)| index.graph.set(*node, level + 1, list));
        }
        index.labels.reserve(nodes);
        let Index { rows, labels, slots, .. } = &mut index;
        opened.each(|node, vector, label| {
            rows.set_kept(node, vector);
            labels.push(label);
            slots.insert(label, node);
        })?;
        if slots.len() != nodes || slots.contains_key(&NOBODY) {
            return Err(opened.wrong("a label comes twice"));
        }
        index.dead.resize(nodes, false);
        index.arrivals = opened.head.arrivals;
        index.set_ef(opened.head.ef as usize);
        index.graph.set_entry((nodes > 0).then_some(opened.head.entry));
        index.sketch_rows(std::iter::empty());
        Ok(index)
    }
}
