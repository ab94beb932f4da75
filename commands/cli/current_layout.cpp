#include <charconv>
#include <set>
#include <sstream>

#include "commands/cli/flag_kinds.h"
#include "commands/regress/output_metric.h"
#include "moe/base/files.h"
#include "moe/record/pass_times.h"

namespace moe::cli {
namespace {

/// The flags that a layout's words can name, and the fields that they set.
class LayoutWords {
 public:
  LayoutWords() {
    app_.set_help_flag();
    add_batch(app_, selection_);
    add_groups(app_, selection_);
    add_stage_layers(app_, selection_);
    add_micro_batches(app_, layout_.model);
    add_global_batch(app_, layout_.global_batch);
    add_states(app_, selection_);
  }

  void read(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = equals == std::string::npos ? "a schedule" : word.substr(0, equals);
    require<BadInput>(!word.empty(), "--current: found an empty word, expected {}", expected());
    if (equals == std::string::npos && app_.get_option_no_throw("--" + word) != nullptr)
      bad_input("--current: found '{}', expected {}=VALUE", word, word);
    require<BadInput>(read_.insert(name).second, "--current: found {} twice, expected it once", name);
    if (equals == std::string::npos) {
      layout_.schedule = word;
      return;
    }
    const std::string flag = "--" + name;
    if (name.empty() || app_.get_option_no_throw(flag) == nullptr)
      bad_input("--current: found '{}', expected {}{}", word, expected(), suggestion_for(flag, app_));
    try {
      app_.parse(std::vector<std::string>{"--" + word});
    } catch (const BadInput& error) {
      bad_input("--current: {}", error.what());
    } catch (const CLI::ParseError&) {
      bad_input("--current: found '{}', expected {}=VALUE", word, name);
    }
    if (!layout_.file) return;
    std::erase_if(layout_.file->settings, [&](const auto& said) { return said.flag == flag; });
    std::erase_if(layout_.file->defaults, [&](const auto& held) { return held.flag == flag; });
  }

  void read_file(const std::string& path) {
    layout_.file = commands::read_layout(path);
    layout_.schedule = layout_.file->framework->schedules().front()->name;
    for (const auto& [flag, value, where] : layout_.file->settings) set(flag, value, where);
  }

  tuner::CurrentLayout layout() && {
    if (layout_.file && read_.contains("pp") && !read_.contains("virtual-stages"))
      if (const auto* chunk = layout_.file->find("--virtual-stages");
          chunk != nullptr && chunk->where.ends_with(commands::kLayersPerChunk))
        bad_input("--current: found pp beside {}, which counts layers, expected virtual-stages=N too", chunk->where);
    if (layout_.file)
      for (const auto& [flag, value] : layout_.file->defaults)
        set(flag, value == "MP" ? std::to_string(*selection_.layer.mp) : std::string(value), layout_.file->path);
    commands::LayerFlags& layer = layout_.layer = selection_.layer;
    if (layout_.file && !layer.cp) layer.cp = 1;
    if (layout_.file && layer.cp == 1 && !read_.contains("cp-exchange")) {
      layer.cp_exchange.reset();
      std::erase_if(layout_.file->defaults, [](const auto& held) { return held.flag == "--cp-exchange"; });
    }
    return std::move(layout_);
  }

 private:
  // Sets a flag to a file's value. If the flag's own limits refuse it, the message names the file's setting instead.
  void set(std::string_view flag, const std::string& value, const std::string& where) {
    try {
      app_.parse(std::vector<std::string>{fmt::format("{}={}", flag, value)});
    } catch (const BadInput& error) {
      const std::string what = error.what(), prefix = fmt::format("{}: ", flag);
      bad_input("--current: {}: {}", where, what.starts_with(prefix) ? what.substr(prefix.size()) : what);
    }
  }

  std::string expected() const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app_.get_options()) names.push_back(option->get_lnames().front());
    return fmt::format("SCHEDULE[:R_F[:R_B]] or NAME=VALUE, with NAME one of: {}", fmt::join(names, ", "));
  }

  CLI::App app_;
  commands::Selection selection_;
  tuner::CurrentLayout layout_;
  std::set<std::string> read_;
};

}  // namespace

tuner::CurrentLayout current_layout(const std::string& text) {
  LayoutWords read;
  std::istringstream list(text + ',');
  std::string word;
  std::getline(list, word, ',');
  if (word.find_first_of("/.") != std::string::npos)
    read.read_file(word);
  else
    read.read(word);
  while (std::getline(list, word, ',')) read.read(word);
  return std::move(read).layout();
}

tuner::MeasuredSteps measured_steps(const std::string& text) {
  const std::string flag = "--measured";
  require<BadInput>(!text.empty(), "{}: found '', expected a log or seconds", flag);
  double seconds = 0;
  if (const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
      error == std::errc{} && end == text.data() + text.size())
    return {{number<double>(flag, text, {1e-9, 1e9})}};
  const std::string log = text_of_file(text, "a training's log, or seconds of a step");
  std::optional<tuner::MeasuredSteps> steps;
  for (const std::string& kind : regress::known_log_formats()) {
    const auto found = regress::OutputMetric(kind, "", flag).in(log, {});
    const auto times = found.cases.find("");
    if (times == found.cases.end()) continue;
    if (!steps) steps = {max_over_ranks(times->second.samples), found.is_rate, found.flops_per_s};
    if (steps->flops_per_s.empty()) steps->flops_per_s = found.flops_per_s;  // Megatron-Bridge has them on other lines
  }
  if (steps) return *std::move(steps);
  bad_input("{}: {}: found no time of an iteration, expected the log of a training: {}", flag, text,
            fmt::join(regress::known_log_formats(), ", "));
}

}  // namespace moe::cli
