// Small pictures: a raster, text in a built-in 5 x 7 font, grids of labelled images, PNG files.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace whit::io {

struct Rgb {
  uint8_t r = 0, g = 0, b = 0;
};

/// A picture, three bytes a pixel, row-major. Drawing outside of it does nothing.
struct Picture {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;

  Picture() = default;
  /// errors: a size below 1, or a picture of more than 2^28 pixels
  Picture(int64_t width_px, int64_t height_px, Rgb background);
  void set_pixel(int64_t x, int64_t y, Rgb color);
  void fill(int64_t x, int64_t y, int64_t width_px, int64_t height_px, Rgb color);
  /// Letters (shown as capitals), digits and the common signs, 6 pixels a character; others become a box.
  void draw_text(int64_t x, int64_t y, std::string_view text, Rgb color, int64_t scale = 1);
};

/// One image of a grid: grey values, row-major, and the text under it.
struct GridImage {
  const uint8_t* pixels = nullptr;
  std::string label;
  Rgb label_color{255, 255, 255};
};

/// Lays images of one size out in rows of `n_columns`, each enlarged `scale` times with its label under it.
Picture make_grid(std::span<const GridImage> images, int64_t n_rows_px, int64_t n_cols_px, int64_t n_columns, int64_t scale = 4);

/// Writes a PNG file atomically.
void write_png(const std::string& path, const Picture& picture);

}  // namespace whit::io
