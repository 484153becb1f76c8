//! Images with classes, from files as MNIST and Fashion-MNIST have them.
//!
//! Pixels become numbers of mean 0 and deviation 1 over the images to learn from. A network whose images are larger
//! gets them in the middle of a black frame, and one with colours gets three times the grey.

use std::path::Path;

use tiercel_workload::graph::Shape;

use super::write::write;
use super::{Data, DataError, Idx, Input, Part, Request, Split, pick};
use tiercel_kernels::random::key;

/// Images of one size and their classes.
#[derive(Clone, Debug)]
pub struct Pictures {
    rows: usize,
    columns: usize,
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Pictures {
    /// Images of `rows` by `columns` pixels, one after the other, and as many labels.
    pub fn new(rows: usize, columns: usize, pixels: Vec<u8>, labels: Vec<u8>) -> Result<Pictures, DataError> {
        if rows == 0 || columns == 0 || labels.is_empty() || pixels.len() != rows * columns * labels.len() {
            let (bytes, count) = (pixels.len(), labels.len());
            return Err(DataError::Counts { count, bytes, rows, columns });
        }
        Ok(Pictures { rows, columns, pixels, labels })
    }

    fn open(folder: &Path, split: &str, other: &str) -> Result<Pictures, DataError> {
        let path = || folder.display().to_string();
        let name = |kind: &str| [format!("{split}-{kind}-ubyte"), format!("{other}-{kind}-ubyte")];
        let open = |what, kind, axes| {
            let names = name(kind);
            Idx::open(folder, what, &names.each_ref().map(String::as_str), axes)
        };
        let images = open("images", "images-idx3", 3)?;
        let labels = open("labels", "labels-idx1", 1)?;
        if images.dims[0] != labels.dims[0] {
            let what = format!("{} images and {} labels in {split}", images.dims[0], labels.dims[0]);
            return Err(DataError::Misfit { path: path(), what });
        }
        Pictures::new(images.dims[1], images.dims[2], images.bytes, labels.bytes)
            .map_err(|error| DataError::Misfit { path: path(), what: error.to_string() })
    }
}

/// Images to learn from and to be judged by.
#[derive(Clone, Debug)]
pub struct Images {
    train: Pictures,
    test: Pictures,
    mean: f32,
    /// One over the deviation.
    scale: f32,
    classes: u64,
    name: String,
    /// The order of the epoch that was asked for last, and of the one before: a batch may have samples of both.
    orders: [Option<(u64, u64, Vec<u32>)>; 2],
}

impl Images {
    /// Reads `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same of `t10k` (or `test`) in a folder, each
    /// plain or packed.
    pub fn open(folder: &Path) -> Result<Images, DataError> {
        let train = Pictures::open(folder, "train", "train")?;
        let test = Pictures::open(folder, "t10k", "test")?;
        let name = folder.file_name().map_or("images".into(), |name| name.to_string_lossy().into_owned());
        Images::new(&name, train, test).map_err(|error| DataError::Misfit {
            path: folder.display().to_string(),
            what: error.to_string(),
        })
    }

    /// These images.
    pub fn new(name: &str, train: Pictures, test: Pictures) -> Result<Images, DataError> {
        if (train.rows, train.columns) != (test.rows, test.columns) {
            return Err(DataError::Sizes {
                train: (train.rows, train.columns),
                test: (test.rows, test.columns),
            });
        }
        let mut counts = [0u64; 256];
        train.pixels.iter().for_each(|p| counts[usize::from(*p)] += 1);
        let n = train.pixels.len() as f64;
        let levels = || counts.iter().zip(0u32..).map(|(count, level)| (*count as f64, f64::from(level)));
        let mean = levels().map(|(count, level)| count * level).sum::<f64>() / n;
        let variance =
            levels().map(|(count, level)| count * (level - mean) * (level - mean)).sum::<f64>() / n;
        let scale = if variance > 0.0 { 1.0 / variance.sqrt() } else { 1.0 };
        let classes = train.labels.iter().chain(&test.labels).max().map_or(0, |top| u64::from(*top) + 1);
        Ok(Images {
            train,
            test,
            mean: mean as f32,
            scale: scale as f32,
            classes,
            name: name.to_string(),
            orders: [None, None],
        })
    }

    /// The longer side of an image.
    pub fn side(&self) -> u64 {
        self.train.rows.max(self.train.columns) as u64
    }

    /// Where an image goes in a tensor of this shape: channels, rows, columns; `None` where it has no room.
    fn frame(&self, shape: Shape) -> Option<[usize; 3]> {
        let [channels, rows, columns] = match *shape.dims() {
            [_, c, h, w] => [c, h, w],
            [_, pixels] if pixels == (self.train.rows * self.train.columns) as u64 => {
                [1, self.train.rows as u64, self.train.columns as u64]
            }
            [_, pixels] if pixels.isqrt() * pixels.isqrt() == pixels => [1, pixels.isqrt(), pixels.isqrt()],
            _ => return None,
        };
        let room = rows >= self.train.rows as u64 && columns >= self.train.columns as u64;
        room.then_some([channels, rows, columns].map(|n| n as usize))
    }

    /// The image or label that stands at a position of the stream of samples.
    fn index(&mut self, request: &Request<'_>, at: u64) -> usize {
        let position = request.position + at;
        if request.split == Split::Test {
            return (position % self.test.labels.len() as u64) as usize;
        }
        let n = self.train.labels.len();
        let (epoch, within) = (position / n as u64, (position % n as u64) as usize);
        let wanted = (request.seed, epoch);
        let known = self.orders.iter().flatten().position(|(seed, number, _)| (*seed, *number) == wanted);
        if known.is_none() {
            self.orders.swap(0, 1);
            let order = pick::order(key(&[pick::stream(request.seed, "order of samples"), epoch]), n);
            self.orders[0] = Some((request.seed, epoch, order));
        }
        let order = self.orders.iter().flatten().find(|(seed, number, _)| (*seed, *number) == wanted);
        order.expect("just made").2[within] as usize
    }
}

impl Data for Images {
    fn about(&self) -> String {
        let Pictures { rows, columns, labels, .. } = &self.train;
        let (train, test) = (labels.len(), self.test.labels.len());
        format!("{}: {train} images of {rows}x{columns}, {test} to be judged by", self.name)
    }

    fn samples(&self, split: Split) -> Option<u64> {
        let pictures = if split == Split::Train { &self.train } else { &self.test };
        Some(pictures.labels.len() as u64)
    }

    fn check(&self, inputs: &[Input<'_>]) -> Result<(), DataError> {
        let (rows, columns) = (self.train.rows, self.train.columns);
        let features: Vec<_> = inputs.iter().filter(|i| i.part == Part::Features).collect();
        if !features.iter().any(|i| self.frame(i.value.shape).is_some()) {
            let shown: Vec<String> =
                features.iter().map(|i| format!("{} {}", i.value.name, i.value.shape)).collect();
            let inputs = if shown.is_empty() { "no image".to_string() } else { shown.join(", ") };
            return Err(DataError::Unfit(format!(
                "{}: images of {rows}x{columns} do not fit the network's input ({inputs})",
                self.name
            )));
        }
        for input in inputs {
            if let Part::Labels { classes } = input.part
                && classes < self.classes
            {
                let name = &self.name;
                return Err(DataError::Unfit(format!(
                    "{name} has {} classes; the network tells {classes} apart",
                    self.classes
                )));
            }
        }
        Ok(())
    }

    fn fill(&mut self, request: &Request<'_>, bytes: &mut [u8]) -> Result<bool, DataError> {
        let dtype = request.value.dtype;
        let samples = bytes.chunks_exact_mut(bytes.len() / request.batch.max(1) as usize).zip(0u64..);
        match request.part {
            Part::Features => {
                let Some([channels, rows, columns]) = self.frame(request.value.shape) else {
                    return Ok(false);
                };
                let size = dtype.size() as usize;
                for (sample, at) in samples {
                    let index = self.index(request, at);
                    let Images { mean, scale, .. } = *self;
                    let pictures = if request.split == Split::Train { &self.train } else { &self.test };
                    let (height, width) = (pictures.rows, pictures.columns);
                    let black = -mean * scale;
                    write(dtype, sample, |_| black, |_| 0);
                    let picture = &pictures.pixels[index * height * width..][..height * width];
                    for channel in 0..channels {
                        for (y, row) in picture.chunks_exact(width).enumerate() {
                            let top = channel * rows + (rows - height) / 2 + y;
                            let start = (top * columns + (columns - width) / 2) * size;
                            let out = &mut sample[start..][..width * size];
                            let number = |i: u64| (f32::from(row[i as usize]) - mean) * scale;
                            write(dtype, out, number, |_| 0);
                        }
                    }
                }
            }
            Part::Labels { .. } => {
                for (sample, at) in samples {
                    let index = self.index(request, at);
                    let pictures = if request.split == Split::Train { &self.train } else { &self.test };
                    let label = pictures.labels[index];
                    write(dtype, sample, |_| f32::from(label), |_| u64::from(label));
                }
            }
            Part::Words | Part::Other => return Ok(false),
        }
        Ok(true)
    }
}
