#include <fmt/ostream.h>
#include <ostream>

#include "moe/base/config.h"
#include "moe/cost/modules.h"
#include "moe/cost/profile.h"

namespace moe {
namespace {

// Returns a TOML basic string. A path may hold bytes that are no UTF-8.
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
  if (!is_line(out))
    for (char& c : out)
      if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  return out + '"';
}

// Writes the shortest text that reads back as the same double (at most 17 digits).
void write_number(std::ostream& out, std::string_view key, double value) { fmt::print(out, "{} = {}\n", key, value); }

void write_optional(std::ostream& out, std::string_view key, const std::optional<double>& value) {
  if (value) write_number(out, key, *value);
}

void write_range(std::ostream& out, std::string_view key, const std::optional<Range>& range) {
  if (range) fmt::print(out, "{} = [{}, {}]\n", key, (*range)[0], (*range)[1]);
}

void write_pairs(std::ostream& out, std::string_view key, const Points& pairs) {
  if (pairs.empty()) return;
  fmt::print(out, "{} = [\n", key);
  for (const auto& [size, seconds] : pairs) fmt::print(out, "  [{}, {}],\n", size, seconds);
  fmt::print(out, "]\n");
}

template <class Row>
void write_fit(std::ostream& out, const Row& row) {
  write_optional(out, "r_squared", row.r_squared);
  write_optional(out, "held_out_error", row.held_out_error);
  write_optional(out, "held_out_worst", row.verdict.held_out_worst);
  if (!row.verdict.weak.empty()) fmt::print(out, "weak = {}\n", toml_text(row.verdict.weak));
  write_pairs(out, "set_aside", row.verdict.set_aside);
}

void write(std::ostream& out, const CommRow& row) {
  fmt::print(out, "\n[[comm]]\nop = \"{}\"\nnetwork = \"{}\"\nranks = {}\n", name_of(row.op), name_of(row.network),
             row.ranks);
  write_number(out, "alpha_s", row.alpha_s);
  write_number(out, "beta_s_per_byte", row.beta_s_per_byte);
  if (row.algorithm != CommRow{}.algorithm) fmt::print(out, "algorithm = \"{}\"\n", row.algorithm);
  if (row.node_limit > 0) fmt::print(out, "node_limit = {}\n", row.node_limit);
  write_fit(out, row);
  write_range(out, "range_bytes", row.range_bytes);
  write_pairs(out, "points", row.points);
}

void write(std::ostream& out, const ComputeRow& row) {
  fmt::print(out, "\n[[compute]]\nop = \"{}\"\n", name_of(row.op));
  if (row.ffn) fmt::print(out, "ffn = \"{}\"\n", name_of(*row.ffn));
  if (row.op != Op::copy) fmt::print(out, "dtype = \"{}\"\n", name_of(row.dtype));
  write_number(out, "alpha_s", row.alpha_s);
  if (row.op == Op::copy)
    write_number(out, "beta_s_per_byte", row.beta_s_per_byte);
  else
    write_number(out, "beta_s_per_flop", row.beta_s_per_flop);
  write_fit(out, row);
  write_range(out, "range_flops", row.range_flops);
}

void write(std::ostream& out, const ModuleRow& row) {
  fmt::print(out, "\n[[module]]\nname = {}\nphase = \"{}\"\n", toml_text(row.name), name_of(row.phase));
  if (row.seq) fmt::print(out, "seq = {}\n", *row.seq);
  write_number(out, "alpha_s", row.alpha_s);
  const bool by_byte = is_priced_by_byte(row.name);
  write_number(out, by_byte ? "beta_s_per_byte" : "beta_s_per_flop", row.beta());
  write_fit(out, row);
  write_range(out, by_byte ? "range_bytes" : "range_flops", row.range);
}

void write(std::ostream& out, const TaskRow& row) {
  fmt::print(out, "\n[[task]]\nname = {}\nphase = \"{}\"\ndtype = \"{}\"\n", toml_text(row.name), name_of(row.phase),
             name_of(row.dtype));
  for (size_t t = 0; t < kTerms; ++t) {
    if (row.most[t] == 0) continue;
    const std::string_view term = term_names()[t];
    write_number(out, fmt::format("s_per_{}", term), row.s_per[t]);
    fmt::print(out, "range_{} = [{}, {}]\n", term, row.least[t], row.most[t]);
  }
  write_fit(out, row);
}

void write(std::ostream& out, const UnusableRow& row) {
  fmt::print(out, "\n[[unusable]]\nrow = {}\nreason = {}\n", toml_text(row.row), toml_text(row.reason));
}

void write(std::ostream& out, const Contention& contention) {
  fmt::print(out, "\n[contention]\n");
  for (const ContentionPair& pair : contention_pairs()) {
    if (contention.*pair.factor != 1) write_number(out, pair.key(), contention.*pair.factor);
    if (pair.stall_s(contention) != 0) write_number(out, pair.stall_key(), pair.stall_s(contention));
  }
}

}  // namespace

std::string row_name(const CommRow& row) {
  const std::string algorithm = row.algorithm == CommRow{}.algorithm ? "" : " " + row.algorithm;
  return fmt::format("{} {} {}{}", name_of(row.op), name_of(row.network), row.ranks, algorithm);
}

std::string row_name(const ComputeRow& row) {
  return fmt::format("{}{} {}", name_of(row.op), row.ffn ? fmt::format(" {}", name_of(*row.ffn)) : "",
                     name_of(row.dtype));
}

std::string row_name(const ModuleRow& row) {
  return fmt::format("{} {}{}", row.name, name_of(row.phase), row.seq ? fmt::format(" {}", *row.seq) : "");
}

std::string row_name(const TaskRow& row) {
  return fmt::format("task {} {} {}", row.name, name_of(row.phase), name_of(row.dtype));
}

void write_profile(const Profile& profile, std::ostream& out) {
  fmt::print(out, "schema = 1\nname = {}\nsource = {}\n", toml_text(profile.name), toml_text(profile.source));
  fmt::print(out, "\n[topology]\nnodes = {}\nranks_per_node = {}\n", profile.nodes, profile.ranks_per_node);
  write_optional(out, "memory_bytes", profile.memory_bytes);
  for (const auto& row : profile.comm) write(out, row);
  for (const auto& row : profile.compute) write(out, row);
  for (const auto& row : profile.modules) write(out, row);
  for (const auto& row : profile.tasks) write(out, row);
  for (const auto& row : profile.unusable) write(out, row);
  if (profile.task_overhead_s != 0) {
    fmt::print(out, "\n[overhead]\n");
    write_number(out, "task_s", profile.task_overhead_s);
  }
  if (!profile.contention.none()) write(out, profile.contention);
}

}  // namespace moe
