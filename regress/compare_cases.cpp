#include "regress/compare_cases.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "moe/base/check.h"
#include "moe/base/config.h"

namespace moe::regress {
namespace {

struct Candidate {
  const CaseRecord* record;
  const RunHeader* run;
};
using ByKey = std::map<std::string, std::vector<Candidate>>;

ByKey by_key(const Side& side, CaseFilter& filter) {
  ByKey found;
  for (const Side::OfFile& file : side.files)
    for (const CaseRecord& record : file.run.cases)
      if (!is_of_gate(record) && !is_repeat(record) && filter.keeps(record))
        found[record.key].push_back({&record, &file.run.header});
  return found;
}

bool same_case(const Candidate& a, const Candidate& b) { return asked_difference(*a.record, *b.record).empty(); }

/// Says where a case stands twice on a side; empty: it does not.
std::string twice(const std::vector<Candidate>& of_key, std::string_view side) {
  for (size_t i = 0; i < of_key.size(); ++i)
    for (size_t j = i + 1; j < of_key.size(); ++j)
      if (same_case(of_key[i], of_key[j]))
        return fmt::format("{} has it twice: {} and {}", side, of_key[i].record->where, of_key[j].record->where);
  return {};
}

std::optional<double> peak_bytes(const CaseRecord& record) {
  const Scalar* found = record.summary.find("peak_bytes");
  if (!found) return std::nullopt;
  const double bytes = std::holds_alternative<int64_t>(*found)  ? static_cast<double>(std::get<int64_t>(*found))
                       : std::holds_alternative<double>(*found) ? std::get<double>(*found)
                                                                : 0;
  return std::isfinite(bytes) && bytes > 0 ? std::optional(bytes) : std::nullopt;
}

std::string status_text(const CaseRecord& a, const CaseRecord& b) {
  return fmt::format("{} -> {}{}{}", name_of(a.status), name_of(b.status), b.reason.empty() ? "" : ": ", b.reason);
}

class Matcher {
 public:
  Matcher(const std::string& by, const NoiseFloors& floors) : by_(by), floors_(floors) {}

  /// Compares all cases of a key that both sides have.
  void match(const std::string& key, std::vector<Candidate> base, std::vector<Candidate> head) {
    for (const auto& why : {twice(base, "BASE"), twice(head, "HEAD")})
      if (!why.empty()) {
        out_.refused.push_back({key, why});
        return;
      }
    std::erase_if(base, [&](const Candidate& b) {
      const auto found = std::ranges::find_if(head, [&](const Candidate& h) { return same_case(b, h); });
      if (found == head.end()) return false;
      compare(b, *found);
      head.erase(found);
      return true;
    });
    if (!base.empty() && !head.empty()) {
      out_.refused.push_back({key, asked_difference(*base.front().record, *head.front().record)});
      return;
    }
    for (size_t i = 0; i < base.size(); ++i) out_.only_in_base.push_back(key);
    for (size_t i = 0; i < head.size(); ++i) out_.only_in_head.push_back(key);
  }

  Comparison take() {
    require<BadInput>(out_.cases.empty() || grouped_, "--by: found {}, expected a parameter of some case, or schedule",
                      shown(by_));
    std::ranges::stable_sort(out_.cases, std::greater(), &ComparedCase::ratio);
    std::map<std::tuple<Metric, std::string>, std::pair<int, double>> sums;
    for (const ComparedCase& c : out_.cases) {
      auto& [cases, logs] = sums[{c.metric, c.group}];
      ++cases;
      logs += std::log(c.ratio());
    }
    for (const auto& [name, sum] : sums)
      out_.groups.push_back({std::get<1>(name), std::get<0>(name), sum.first, std::exp(sum.second / sum.first)});
    return std::move(out_);
  }

  Comparison& out() { return out_; }

 private:
  void compare(const Candidate& b, const Candidate& h) {
    const CaseRecord &base = *b.record, &head = *h.record;
    const auto is_one_of = [](CaseStatus status, auto... any) { return ((status == any) || ...); };
    const bool was_bad = is_one_of(base.status, CaseStatus::wrong, CaseStatus::error);
    if (!was_bad && is_one_of(head.status, CaseStatus::wrong, CaseStatus::error)) {
      out_.broken.push_back({base.key, status_text(base, head)});
      return;
    }
    if (const std::string why = measured_difference(*b.run, base, *h.run, head); !why.empty()) {
      out_.refused.push_back({base.key, why});
      return;
    }
    const bool was_ok = base.status == CaseStatus::ok;
    if (was_ok && is_one_of(head.status, CaseStatus::oom, CaseStatus::unsupported))
      out_.broken.push_back({base.key, status_text(base, head)});
    else if (!was_ok || head.status != CaseStatus::ok)
      out_.refused.push_back({base.key, fmt::format("status: {}", status_text(base, head))});
    else
      compare_ok(base, head, floors_.of(b.run->machine).between_sessions);
  }

  void compare_ok(const CaseRecord& base, const CaseRecord& head, std::optional<double> floor) {
    const MainTime was = main_time(base), is = main_time(head);
    for (const MainTime* time : {&was, &is})
      if (!time->fault.empty()) {
        out_.refused.push_back({base.key, fmt::format("{}: {}", time == &was ? "BASE" : "HEAD", time->fault)});
        return;
      }
    if (was.sample != is.sample) {
      out_.refused.push_back({base.key, fmt::format("samples: {} against {}", was.sample, is.sample)});
      return;
    }
    const auto value = value_of(base, by_);
    grouped_ = grouped_ || value;
    const std::string group = value.value_or("none");
    const double ratio = is.seconds / was.seconds;
    out_.cases.push_back({base.key, group, Metric::time, was.seconds, is.seconds, floor, time_verdict(ratio, floor)});
    if (const auto old_bytes = peak_bytes(base), bytes = peak_bytes(head); old_bytes && bytes)
      out_.cases.push_back(
          {base.key, group, Metric::memory, *old_bytes, *bytes, std::nullopt, memory_verdict(*bytes / *old_bytes)});
  }

  const std::string& by_;
  const NoiseFloors& floors_;
  bool grouped_ = false;  // whether any case has what `by` names
  Comparison out_;
};

}  // namespace

Side read_side(const std::string& path) {
  Side side{path, {}};
  for (const std::string& file : record_files(path, false)) {
    std::vector<Run> runs = read_runs(file);
    if (!runs.empty()) side.files.push_back({file, std::move(runs.back())});  // one that was begun may be empty
  }
  require<BadInput>(!side.files.empty(), "{}: found no run, expected records", path);
  return side;
}

std::string_view name_of(Metric metric) { return metric == Metric::time ? "time" : "memory"; }

Verdict time_verdict(double ratio, std::optional<double> floor) {
  const double change = std::log(ratio);
  if (std::abs(change) <= std::max(std::log(kLeastRatio), std::log1p(floor.value_or(0)))) return Verdict::same;
  return !floor ? Verdict::ambiguous : change > 0 ? Verdict::slower : Verdict::faster;
}

Comparison compare_sides(const Side& base, const Side& head, CaseFilter& filter, const std::string& by,
                         const NoiseFloors& floors) {
  const ByKey old_cases = by_key(base, filter), cases = by_key(head, filter);
  filter.require_known();
  Matcher matcher(by, floors);
  for (const auto& [key, of_base] : old_cases) {
    const auto found = cases.find(key);
    if (found == cases.end())
      matcher.out().only_in_base.push_back(key);
    else
      matcher.match(key, of_base, found->second);
  }
  for (const auto& [key, of_head] : cases)
    if (!old_cases.contains(key)) matcher.out().only_in_head.push_back(key);
  return matcher.take();
}

}  // namespace moe::regress
