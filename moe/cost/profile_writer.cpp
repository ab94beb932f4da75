#include <fmt/ostream.h>
#include <ostream>

#include "moe/cost/modules.h"
#include "moe/cost/profile.h"

namespace moe {
namespace {

// A TOML basic string.
std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", static_cast<char>(c));
    else if (c < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04x}", c);
    else
      out += static_cast<char>(c);
  }
  return out + '"';
}

// The shortest text that reads back as the same double (at most 17 digits).
void write_number(std::ostream& out, std::string_view key, double value) { fmt::print(out, "{} = {}\n", key, value); }

void write_optional(std::ostream& out, std::string_view key, const std::optional<double>& value) {
  if (value) write_number(out, key, *value);
}

void write_range(std::ostream& out, std::string_view key, const std::optional<Range>& range) {
  if (range) fmt::print(out, "{} = [{}, {}]\n", key, (*range)[0], (*range)[1]);
}

void write(std::ostream& out, const CommRow& row) {
  fmt::print(out, "\n[[comm]]\nop = \"{}\"\nnetwork = \"{}\"\nranks = {}\n", row.op, name_of(row.network), row.ranks);
  write_number(out, "alpha_s", row.alpha_s);
  write_number(out, "beta_s_per_byte", row.beta_s_per_byte);
  if (row.algorithm != CommRow{}.algorithm) fmt::print(out, "algorithm = \"{}\"\n", row.algorithm);
  write_optional(out, "r_squared", row.r_squared);
  write_optional(out, "held_out_error", row.held_out_error);
  write_range(out, "range_bytes", row.range_bytes);
  if (row.points.empty()) return;
  fmt::print(out, "points = [\n");
  for (const auto& [size, seconds] : row.points) fmt::print(out, "  [{}, {}],\n", size, seconds);
  fmt::print(out, "]\n");
}

void write(std::ostream& out, const ComputeRow& row) {
  fmt::print(out, "\n[[compute]]\nop = \"{}\"\n", row.op);
  if (row.ffn) fmt::print(out, "ffn = \"{}\"\n", name_of(*row.ffn));
  fmt::print(out, "dtype = \"{}\"\n", name_of(row.dtype));
  write_number(out, "alpha_s", row.alpha_s);
  if (row.op == "copy")
    write_number(out, "beta_s_per_byte", row.beta_s_per_byte);
  else
    write_number(out, "beta_s_per_flop", row.beta_s_per_flop);
  write_optional(out, "r_squared", row.r_squared);
  write_optional(out, "held_out_error", row.held_out_error);
  write_range(out, "range_flops", row.range_flops);
}

void write(std::ostream& out, const ModuleRow& row) {
  fmt::print(out, "\n[[module]]\nname = {}\nphase = \"{}\"\n", toml_text(row.name), name_of(row.phase));
  if (row.seq) fmt::print(out, "seq = {}\n", *row.seq);
  write_number(out, "alpha_s", row.alpha_s);
  const bool by_byte = is_priced_by_byte(row.name);
  write_number(out, by_byte ? "beta_s_per_byte" : "beta_s_per_flop", row.beta());
  write_optional(out, "r_squared", row.r_squared);
  write_optional(out, "held_out_error", row.held_out_error);
  write_range(out, by_byte ? "range_bytes" : "range_flops", row.range);
}

void write(std::ostream& out, const Contention& contention) {
  fmt::print(out, "\n[contention]\n");
  for (const ContentionPair& pair : contention_pairs()) {
    if (contention.*pair.factor != 1) write_number(out, pair.key(), contention.*pair.factor);
    if (pair.stall_s(contention) != 0) write_number(out, pair.stall_key(), pair.stall_s(contention));
  }
}

}  // namespace

void write_profile(const Profile& profile, std::ostream& out) {
  fmt::print(out, "schema = 1\nname = {}\nsource = {}\n", toml_text(profile.name), toml_text(profile.source));
  fmt::print(out, "\n[topology]\nnodes = {}\nranks_per_node = {}\n", profile.nodes, profile.ranks_per_node);
  write_optional(out, "memory_bytes", profile.memory_bytes);
  for (const auto& row : profile.comm) write(out, row);
  for (const auto& row : profile.compute) write(out, row);
  for (const auto& row : profile.modules) write(out, row);
  if (profile.task_overhead_s != 0) {
    fmt::print(out, "\n[overhead]\n");
    write_number(out, "task_s", profile.task_overhead_s);
  }
  if (!profile.contention.none()) write(out, profile.contention);
}

}  // namespace moe
