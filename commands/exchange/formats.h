#pragma once
// Writers and readers of the formats: each writes what the options request, or reads files into records.
// docs/exchange.md and docs/imports.md describe them.
#include <iosfwd>
#include <string>

#include "commands/exchange/exchange.h"
#include "moe/record/reader.h"

namespace moe::exchange {

void write_csv(const ExportOptions& options, std::ostream& out);
void write_tutel(const ExportOptions& options, std::ostream& out);
void write_fsmoe(const ExportOptions& options, std::ostream& out);
void write_megatron(const ExportOptions& options, std::ostream& out);
void write_megatron_overlap(const ExportOptions& options, std::ostream& out);
void write_megatron_bridge(const ExportOptions& options, std::ostream& out);
void write_nemo(const ExportOptions& options, std::ostream& out);
void write_deepspeed(const ExportOptions& options, std::ostream& out);
void write_google_benchmark(const ExportOptions& options, std::ostream& out);
void write_otava_csv(const ExportOptions& options, std::ostream& out);
void write_otava_json(const ExportOptions& options, std::ostream& out);
void write_plan_document(const ExportOptions& options, std::ostream& out);
void write_chakra(const ExportOptions& options, std::ostream& out);

void import_csv(const ImportOptions& options);
void import_csv_profile(const ImportOptions& options);
void import_nccl_tests(const ImportOptions& options);
void import_kineto(const ImportOptions& options);
void import_nsys(const ImportOptions& options);
void import_expert_parallel(const ImportOptions& options);
void import_aisimulate(const ImportOptions& options);

/// Write the tables of a profile, or records, as CSV.
void write_profile_csv(const ExportOptions& options, std::ostream& out);
void write_record_csv(const Run& run, std::ostream& out);

/// Returns a case's seconds (forward + backward, or the operation's): measured, else predicted; 0 if it has neither.
double seconds_of(const CaseRecord& record);
/// Returns the slowest rank's seconds in each iteration of a case; empty if it has no samples.
std::vector<double> samples_of(const CaseRecord& record);

}  // namespace moe::exchange
