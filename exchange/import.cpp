#include <array>
#include <fmt/ranges.h>

#include "exchange/formats.h"
#include "moe/base/out_file.h"
#include "moe/base/registry.h"
#include "moe/cost/profile.h"

namespace moe::exchange {
namespace {

struct ImportFormat {
  std::string_view name;
  void (*read)(const ImportOptions&);
  std::string_view flags;  // that it reads, beside --out and --overwrite
};

constexpr std::array<ImportFormat, 4> kImportFormats{{
    {"nccl-tests", import_nccl_tests, "--cluster --op --network --nodes --ranks --ranks-per-node --in-place"},
    {"kineto", import_kineto, "--cluster --network --nodes --ranks-per-node --map"},
    {"csv", import_csv, "--cluster --nodes --ranks-per-node"},
    {"csv-profile", import_csv_profile, ""},
}};

// Returns whether one of the words is the flag.
bool has_flag(std::string_view flags, std::string_view flag) {
  return fmt::format(" {} ", flags).find(fmt::format(" {} ", flag)) != std::string::npos;
}

// Refuses flags that the format does not read.
void check_read(const ImportFormat& format, const ImportOptions& o) {
  const std::pair<std::string_view, bool> given[] = {{"--cluster", o.cluster != ImportOptions().cluster},
                                                     {"--op", !o.op.empty()},
                                                     {"--network", !o.network.empty()},
                                                     {"--nodes", o.nodes.has_value()},
                                                     {"--ranks", o.ranks.has_value()},
                                                     {"--ranks-per-node", o.ranks_per_node.has_value()},
                                                     {"--in-place", o.in_place},
                                                     {"--map", !o.map.empty()},
                                                     {"--overwrite", o.asked.overwrite && format.flags.empty()}};
  for (const auto& [flag, is_given] : given)
    require<BadInput>(!is_given || has_flag(format.flags, flag), "{}: found format {}, which has no use for it", flag,
                      format.name);
  require<BadInput>(o.network.empty() || o.network == "inter" || o.network == "intra",
                    "--network: found '{}', expected inter or intra", o.network);
  require<BadInput>(is_profile_name(o.cluster), "--cluster: found '{}', expected {}", o.cluster, kProfileName);
  require<BadInput>(!o.out.empty(), "--out: found none, expected a file for what is imported");
  require_other_file(o.out, o.files);
  require_other_file(o.out, {o.map});
}

}  // namespace

std::string import_formats() { return fmt::format("{}", fmt::join(row_names(kImportFormats), "|")); }

int run_import(const ImportOptions& options) {
  const ImportFormat& format = find_named(kImportFormats, options.format, "import");
  check_read(format, options);
  format.read(options);
  return 0;
}

}  // namespace moe::exchange
