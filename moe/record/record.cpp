#include "moe/record/record.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/base/enum_array.h"

namespace moe {
namespace {

constexpr EnumArray<CaseStatus, std::string_view, 6> kStatusNames{"ok",  "wrong",       "invalid",
                                                                  "oom", "unsupported", "error"};

std::string describe(const Scalar* value) { return value ? scalar_text(*value) : "no such value"; }

}  // namespace

std::string scalar_text(const Scalar& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

Fields::Fields(std::initializer_list<Row> rows) {
  for (const Row& row : rows) set(row.first, row.second);
}

void Fields::set(std::string_view name, Scalar value) {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.first == name; });
  if (found != rows_.end())
    found->second = std::move(value);
  else
    rows_.emplace_back(name, std::move(value));
}

const Scalar* Fields::find(std::string_view name) const {
  for (const Row& row : rows_)
    if (row.first == name) return &row.second;
  return nullptr;
}

std::optional<double> Fields::find_number(std::string_view name) const {
  const Scalar* found = find(name);
  if (found == nullptr) return std::nullopt;
  if (const auto* whole = std::get_if<int64_t>(found)) return static_cast<double>(*whole);
  const auto* real = std::get_if<double>(found);
  return real != nullptr ? std::optional(*real) : std::nullopt;
}

const std::string* Fields::find_text(std::string_view name) const {
  const Scalar* found = find(name);
  return found != nullptr ? std::get_if<std::string>(found) : nullptr;
}

double Fields::number(std::string_view name, std::string_view where) const {
  if (const auto found = find_number(name)) return *found;
  bad_input("{}: {}: found {}, expected a number", where, name, describe(find(name)));
}

int64_t Fields::whole(std::string_view name, std::string_view where) const {
  const Scalar* found = find(name);
  if (found)
    if (const auto* value = std::get_if<int64_t>(found)) return *value;
  bad_input("{}: {}: found {}, expected a whole number", where, name, describe(found));
}

const std::string& Fields::text(std::string_view name, std::string_view where) const {
  if (const std::string* found = find_text(name)) return *found;
  bad_input("{}: {}: found {}, expected a text", where, name, describe(find(name)));
}

const Samples* find_samples(const CaseRecord& record, std::string_view name) {
  const auto found = std::ranges::find(record.samples, name, &Samples::name);
  return found == record.samples.end() || found->values.empty() ? nullptr : &*found;
}

bool is_repeat(const CaseRecord& record) { return record.parameters.has("again_of"); }

bool is_regression_gate_launch(const CaseRecord& record) {
  return record.key.starts_with("ab/") || record.key.starts_with("self-test/");
}

void require_right(const CaseRecord& record) {
  require<WrongResult>(record.status != CaseStatus::wrong, "{}: {}", record.key, record.reason);
}

std::string_view name_of(CaseStatus status) { return kStatusNames[status]; }

}  // namespace moe
