// Swathmill in Azure: one portal, service managers, as many workers as the work wants, and what they
// lean on. Nothing but the portal is reachable from outside; no key of the storage account exists.
//
//   az deployment group create --resource-group GROUP --template-file infra/bicep/main.bicep \
//       --parameters image=REGISTRY/swathmill:0.1.0 signingSecret=... operators=GROUP_ID
targetScope = 'resourceGroup'

@description('Region of every resource.')
param location string = resourceGroup().location

@description('Short name that every resource is named after.')
@minLength(3)
@maxLength(11)
param name string = 'swathmill'

@description('Image made from infra/Containerfile, with its registry and tag.')
param image string

@description('Registry that the identity pulls the image from, as in REGISTRY.azurecr.io; empty: the image is public. Grant the identity AcrPull there.')
param registryServer string = ''

@description('Key that signs sign-in links and sessions; at least 32 characters.')
@secure()
@minLength(32)
param signingSecret string

@description('Mail server; empty: mail stays in the outbox.')
param smtpHost string = ''

@description('Port of the mail server.')
param smtpPort int = 587

@description('User name at the mail server.')
param smtpUser string = ''

@description('Password at the mail server.')
@secure()
param smtpPassword string = ''

@description('Sender of every mail.')
param mailFrom string = 'swathmill@localhost'

@description('NFS server of a share with granules, mounted read-only at /archive; empty: none.')
param archiveServer string = ''

@description('Path of that share on its server, as in /account/share.')
param archiveShare string = ''

@description('fsspec URL of granules, as in abfs://container/folder, where there is no share; empty: none.')
param archiveUrl string = ''

@description('Sources of granules in order, as in folder,cmr; empty: the folder alone.')
param sources string = ''

@description('NASA Earthdata Login token, for downloads from NASA.')
@secure()
param earthdataToken string = ''

@description('Most worker replicas.')
@minValue(1)
@maxValue(300)
param mostWorkers int = 20

@description('Service managers: one acts, the others stand by.')
@minValue(1)
@maxValue(3)
param managers int = 2

@description('Object id of the Microsoft Entra group whose members may read the logs and the vault; empty: nobody more.')
param operators string = ''

module identity 'identity.bicep' = {
  name: 'identity'
  params: {
    location: location
    name: name
  }
}

module logs 'logs.bicep' = {
  name: 'logs'
  params: {
    location: location
    name: name
    operators: operators
  }
}

module network 'network.bicep' = {
  name: 'network'
  params: {
    location: location
    name: name
  }
}

module storage 'storage.bicep' = {
  name: 'storage'
  params: {
    location: location
    name: name
    principalId: identity.outputs.principalId
    workspaceId: logs.outputs.workspaceId
    endpointSubnetId: network.outputs.endpointSubnetId
    networkId: network.outputs.networkId
  }
}

module vault 'vault.bicep' = {
  name: 'vault'
  params: {
    location: location
    name: name
    principalId: identity.outputs.principalId
    workspaceId: logs.outputs.workspaceId
    endpointSubnetId: network.outputs.endpointSubnetId
    networkId: network.outputs.networkId
    signingSecret: signingSecret
    smtpPassword: smtpPassword
    earthdataToken: earthdataToken
  }
}

module redis 'redis.bicep' = {
  name: 'redis'
  params: {
    location: location
    name: name
    vaultName: vault.outputs.vaultName
    endpointSubnetId: network.outputs.endpointSubnetId
    networkId: network.outputs.networkId
  }
}

module apps 'apps.bicep' = {
  name: 'apps'
  params: {
    location: location
    name: name
    image: image
    identityId: identity.outputs.identityId
    clientId: identity.outputs.clientId
    workspaceName: logs.outputs.workspaceName
    appSubnetId: network.outputs.appSubnetId
    storageAccount: storage.outputs.accountName
    vaultUri: vault.outputs.vaultUri
    redisHost: redis.outputs.host
    redisPort: redis.outputs.port
    redisUrlSecretUri: redis.outputs.urlSecretUri
    redisKeySecretUri: redis.outputs.keySecretUri
    smtpHost: smtpHost
    smtpPort: smtpPort
    smtpUser: smtpUser
    mailFrom: mailFrom
    archiveServer: archiveServer
    archiveShare: archiveShare
    archiveUrl: archiveUrl
    sources: sources
    mostWorkers: mostWorkers
    managers: managers
    registryServer: registryServer
  }
}

output portalUrl string = apps.outputs.portalUrl
