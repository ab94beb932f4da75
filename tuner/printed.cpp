#include "tuner/printed.h"

#define CSV_IO_NO_THREAD
#include <libfccp/csv.h>

#include "moe/base/check.h"
#include "moe/base/config_files.h"

namespace moe {

double printed_speedup(const std::string& grid, std::string_view schedule) {
  const std::string path = config_dir() + "/papers/fsmoe-table5.csv";
  try {
    io::CSVReader<3> reader(path);
    reader.read_header(io::ignore_no_column, "grid", "schedule", "speedup");
    std::string row_grid, row_schedule;
    for (double speedup = 0; reader.read_row(row_grid, row_schedule, speedup);)
      if (row_grid == grid && row_schedule == schedule) return speedup;
  } catch (const io::error::base& error) {
    bad_input("{}: {}", path, error.what());
  }
  return 0;
}

}  // namespace moe
