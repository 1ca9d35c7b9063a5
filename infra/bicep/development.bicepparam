// A cheap one to try things on: one zone, one manager, no worker while there is no work. `swathmill deploy` and azd set the environment variables; secrets are read from
// there alone, so that none is in a file or on a command line.
using 'main.bicep'

param name = readEnvironmentVariable('SWATHMILL_DEPLOY_NAME', 'swathmill')
param image = readEnvironmentVariable('SWATHMILL_DEPLOY_IMAGE')
param workerImage = readEnvironmentVariable('SWATHMILL_DEPLOY_WORKER_IMAGE', '')
param runnerImage = readEnvironmentVariable('SWATHMILL_DEPLOY_RUNNER_IMAGE', '')
param registryServer = readEnvironmentVariable('SWATHMILL_DEPLOY_REGISTRY', '')
param operators = readEnvironmentVariable('SWATHMILL_DEPLOY_OPERATORS', '')
param keepSecrets = readEnvironmentVariable('SWATHMILL_DEPLOY_KEEP_SECRETS', 'false') == 'true'
param recoverVault = readEnvironmentVariable('SWATHMILL_DEPLOY_RECOVER_VAULT', 'false') == 'true'
param signingSecret = readEnvironmentVariable('SWATHMILL_SECRET', '')

param sources = readEnvironmentVariable('SWATHMILL_SOURCES')
param earthdataToken = readEnvironmentVariable('SWATHMILL_EARTHDATA_TOKEN', '')
param archiveUrl = readEnvironmentVariable('SWATHMILL_ARCHIVE', '')
param archiveAccountId = readEnvironmentVariable('SWATHMILL_DEPLOY_ARCHIVE_ACCOUNT', '')
param archiveShare = readEnvironmentVariable('SWATHMILL_DEPLOY_ARCHIVE_SHARE', '')

param smtpUrl = readEnvironmentVariable('SWATHMILL_SMTP_URL', '')
param smtpPassword = readEnvironmentVariable('SWATHMILL_SMTP_PASSWORD', '')
param oidcClientSecret = readEnvironmentVariable('SWATHMILL_OIDC_CLIENT_SECRET', '')
param mailFrom = readEnvironmentVariable('SWATHMILL_MAIL_FROM', 'swathmill@localhost')
param mailApplicationId = readEnvironmentVariable('SWATHMILL_DEPLOY_MAIL_APPLICATION', '')
param mailPrincipalId = readEnvironmentVariable('SWATHMILL_DEPLOY_MAIL_PRINCIPAL', '')

param alertMail = readEnvironmentVariable('SWATHMILL_DEPLOY_ALERT_MAIL', '')

param storageSku = 'Standard_LRS'
param redisSku = 'Balanced_B0'
param redisHighAvailability = false
param managers = 1
param slots = 2
param leastWorkers = 0
param mostWorkers = 4
param leastRunners = 0
param mostRunners = 2

// Settings of docs/settings.md that have no parameter of their own.
param settings = union({
  SWATHMILL_STORAGE_QUOTA_GB: '100'
  SWATHMILL_RESULT_DAYS: '7'
}, json(readEnvironmentVariable('SWATHMILL_DEPLOY_SETTINGS', '{}')))
